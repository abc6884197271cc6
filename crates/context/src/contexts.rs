//! The file of contexts: names for clusters, each with its address and its credentials' files.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, value};

use crate::address::address;
use crate::error::ContextError;
use crate::file_checks::{file_kind, is_ours, open_without_waiting};
use crate::resolve::Variables;
use crate::strict::{Entry, FILE_BYTES_MAX, FileProblem, TomlFile, nearest};

/// Longest name of a context in bytes: it fits into a line with the address beside it. Chosen, not
/// measured.
const NAME_BYTES_MAX: usize = 64;

/// The keys of a context.
pub const CONTEXT_KEYS: [&str; 4] = ["namenode", "token-file", "tls-ca", "tls-name"];

/// The keys at the top.
const TOP_KEYS: [&str; 2] = ["current", "contexts"];

/// A cluster that has a name. It has the paths of credentials, never a token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// The namenode's address, `host:port`, or those of a group, separated by commas.
    pub namenode: String,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// The authorities of the cluster's certificates: use TLS.
    pub tls_ca: Option<PathBuf>,
    /// The name that the certificates are made for.
    pub tls_name: Option<String>,
}

/// The contents of the file. One that does not exist has no contexts.
#[derive(Debug)]
pub struct Contexts {
    path: PathBuf,
    document: DocumentMut,
    current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// Returns where the file is: in `SANDERLING_CONFIG_HOME`, or in `sanderling` of `XDG_CONFIG_HOME`
/// or of `~/.config`. As the XDG specification requires, relative ones of those count as missing.
///
/// # Errors
/// [`ContextError::NoHome`] without a home directory; [`ContextError::RelativeHome`] where the own
/// variable is relative, since the working directory would then choose the cluster.
/// [`ContextError::next`] is the next step.
pub fn file(variables: Variables<'_>) -> Result<PathBuf, ContextError> {
    let directory =
        |name: &str| Some(PathBuf::from(variables(name).filter(|text| !text.is_empty())?));
    let absolute = |name: &str| directory(name).filter(|path| path.is_absolute());
    let directory = match directory("SANDERLING_CONFIG_HOME") {
        Some(path) if path.is_relative() => return Err(ContextError::RelativeHome { path }),
        Some(path) => path,
        None => {
            let shared = absolute("XDG_CONFIG_HOME");
            let shared = shared.or_else(|| Some(absolute("HOME")?.join(".config")));
            shared.ok_or(ContextError::NoHome)?.join("sanderling")
        }
    };
    Ok(directory.join("contexts.toml"))
}

impl Contexts {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ContextError::Open`] when other users can read or write it, [`ContextError::Foreign`] when
    /// it belongs to neither root nor the caller, [`ContextError::NotRegular`] for a directory or a
    /// pipe, [`ContextError::File`] for a wrong line, [`ContextError::Io`] when the system refuses
    /// it. [`ContextError::next`] is the next step.
    pub fn read(path: &Path) -> Result<Self, ContextError> {
        let text = read_private(path)?;
        let file = TomlFile::parse(path, text.clone())?;
        let mut found = Self {
            path: path.to_owned(),
            document: text.parse().unwrap_or_default(),
            current: None,
            contexts: BTreeMap::new(),
        };
        for entry in file.top() {
            match entry.key {
                "current" => found.current = Some(file.text(entry)?.to_owned()),
                "contexts" => {
                    for each in file.table(entry)? {
                        let context = context(&file, each)?;
                        found.contexts.insert(each.key.to_owned(), context);
                    }
                }
                _ => return Err(file.unknown(entry, "", TOP_KEYS).into()),
            }
        }
        Ok(found)
    }

    /// Changes the file, while no other process changes it. It is written whole or not at all, for
    /// its owner alone.
    ///
    /// # Errors
    /// As [`Contexts::read`], and those of the change.
    pub fn update<T>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, ContextError>,
    ) -> Result<T, ContextError> {
        let failed = |cause| ContextError::Io { path: path.to_owned(), cause };
        // A link stays one: its target is replaced.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let directory = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock = File::open(directory).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut contexts = Self::read(path)?;
        let result = change(&mut contexts)?;
        let text = contexts.document.to_string();
        write_private(path, &format!("{}\n", text.trim_end())).map_err(failed)?;
        Ok(result)
    }

    /// Returns the name of the current context; `None` if none was chosen. In a file that was
    /// edited by hand it may name one that does not exist.
    #[must_use]
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Returns the contexts by their names.
    #[must_use]
    pub const fn all(&self) -> &BTreeMap<String, Context> {
        &self.contexts
    }

    /// Returns a context.
    ///
    /// # Errors
    /// [`ContextError::Unknown`] when no context has the name: choose one of those in the error.
    pub fn context(&self, name: &str) -> Result<&Context, ContextError> {
        self.contexts.get(name).ok_or_else(|| ContextError::Unknown {
            name: name.to_owned(),
            path: self.path.clone(),
            names: self.contexts.keys().cloned().collect(),
            near: nearest(name, self.contexts.keys().map(String::as_str)).map(str::to_owned),
        })
    }

    /// Adds a context.
    ///
    /// # Errors
    /// [`ContextError::BadName`]: choose a name of letters, digits and `-_.`.
    /// [`ContextError::Exists`] unless an older one is to be replaced: choose another name, or
    /// replace it.
    pub fn add(
        &mut self,
        name: &str,
        context: Context,
        is_replaced: bool,
    ) -> Result<(), ContextError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(ContextError::BadName { name: name.to_owned() });
        }
        if let Some(older) = self.contexts.get(name).filter(|_| !is_replaced) {
            let namenode = older.namenode.clone();
            return Err(ContextError::Exists { name: name.to_owned(), namenode });
        }
        let mut table = Table::new();
        let mut set = |key: &str, text: &str| table.insert(key, value(text));
        set("namenode", &context.namenode);
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let others = [path(&context.token_file), path(&context.tls_ca), context.tls_name.clone()];
        for (key, text) in CONTEXT_KEYS.iter().skip(1).zip(&others) {
            text.as_ref().map(|text| set(key, text));
        }
        let mut tables = Table::new();
        tables.set_implicit(true);
        let tables = self.document.entry("contexts").or_insert(Item::Table(tables));
        if let Some(tables) = tables.as_table_like_mut() {
            tables.insert(name, Item::Table(table));
        }
        self.contexts.insert(name.to_owned(), context);
        Ok(())
    }

    /// Makes a context the current one.
    ///
    /// # Errors
    /// As [`Self::context`].
    pub fn select(&mut self, name: &str) -> Result<(), ContextError> {
        self.context(name)?;
        self.document.insert("current", value(name));
        self.current = Some(name.to_owned());
        Ok(())
    }

    /// Removes a context; returns whether it was the current one.
    ///
    /// # Errors
    /// As [`Self::context`].
    pub fn remove(&mut self, name: &str) -> Result<bool, ContextError> {
        self.context(name)?;
        self.contexts.remove(name);
        let tables = self.document.get_mut("contexts").and_then(Item::as_table_like_mut);
        tables.map(|tables| tables.remove(name));
        let was_current = self.current.as_deref() == Some(name);
        if was_current {
            self.document.remove("current");
            self.current = None;
        }
        Ok(was_current)
    }
}

fn context(file: &TomlFile, entry: Entry<'_>) -> Result<Context, ContextError> {
    let directory = file.path().parent().unwrap_or(Path::new("."));
    let mut found = Context::default();
    for field in file.inner(entry)? {
        match field.key {
            "namenode" => {
                let read = address(&file.joined(field)?);
                found.namenode = read.map_err(|error| {
                    file.error(field.line, FileProblem::Address(Box::new(error)))
                })?;
            }
            "token-file" => found.token_file = Some(directory.join(file.text(field)?)),
            "tls-ca" => found.tls_ca = Some(directory.join(file.text(field)?)),
            "tls-name" => found.tls_name = Some(file.text(field)?.to_owned()),
            _ => {
                let place = format!(" of context {}", entry.key);
                return Err(file.unknown(field, &place, CONTEXT_KEYS).into());
            }
        }
    }
    if found.namenode.is_empty() {
        let problem = FileProblem::NoNamenode { context: entry.key.to_owned() };
        return Err(file.error(entry.line, problem).into());
    }
    Ok(found)
}

/// Reads a file that only its owner may read. One that does not exist is empty.
fn read_private(path: &Path) -> Result<String, ContextError> {
    let failed = |cause| ContextError::Io { path: path.to_owned(), cause };
    let file = match open_without_waiting(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        let kind = file_kind(found.file_type());
        return Err(ContextError::NotRegular { path: path.to_owned(), kind });
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(ContextError::Open { path: path.to_owned(), mode });
    }
    if !is_ours(&found) {
        return Err(ContextError::Foreign { path: path.to_owned(), owner: found.uid() });
    }
    if found.len() > FILE_BYTES_MAX {
        let cause = format!("it has {} bytes, at most {FILE_BYTES_MAX} are read", found.len());
        return Err(failed(io::Error::other(cause)));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Replaces a file at once by one that only its owner may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let partial = path.with_file_name(name);
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    })();
    if written.is_err() {
        // The error of the write is the one that is reported.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prod() -> Context {
        Context {
            namenode: "nn:7600".to_owned(),
            tls_ca: Some("/ca.pem".into()),
            ..Default::default()
        }
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("contexts.toml");
        write_private(&path, text).expect("written");
        (directory, path)
    }

    #[test]
    fn change_keeps_comments_and_the_mode() {
        let (_directory, path) = written("# mine\n[contexts.a]\nnamenode = \"a\" # near\n");
        Contexts::update(&path, |it| it.add("prod", prod(), false)).expect("added");
        Contexts::update(&path, |it| it.select("prod")).expect("selected");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.contains("# mine") && text.contains("# near"), "{text}");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let found = Contexts::read(&path).expect("whole");
        assert_eq!((found.current(), found.all().len()), (Some("prod"), 2), "{text}");
        assert_eq!(found.context("prod").expect("there"), &prod());
        assert_eq!(found.context("a").expect("there").namenode, "a:7600");
        let (_directory, group) =
            written("[contexts.a]\nnamenode = [\"a\", \"b:1\", \"a:7600\"]\n");
        let group = Contexts::read(&group).expect("a list");
        assert_eq!(group.context("a").expect("there").namenode, "a:7600,b:1");
        let again = Contexts::update(&path, |it| it.add("prod", prod(), false));
        assert!(matches!(again, Err(ContextError::Exists { .. })));
        assert!(Contexts::update(&path, |it| it.remove("prod")).expect("removed"));
        assert_eq!(Contexts::read(&path).expect("whole").current(), None);
    }

    #[test]
    fn wrong_files_are_refused_with_the_line() {
        let cases = [
            ("[contexts.a]\nnamenode = 1\n", ":2: namenode must be a text, not a number"),
            ("[contexts.a]\nnamenode = [1]\n", ":2: namenode must be a text or a list of texts"),
            ("[contexts.a]\nnamenode = []\n", ":2: namenode must be a text or a list of texts"),
            ("[contexts.a]\nnamenode = [\"a\", \"b:x\"]\n", ":2: address 2 of 2 in \"a,b:x\""),
            ("curent = \"a\"\n", ":1: unknown key \"curent\": the nearest is \"current\""),
            ("[contexts.a]\nnamenode = \"a\"\ntoken_file = \"t\"\n", "nearest is \"token-file\""),
            ("\n[contexts.a]\ntls-ca = \"x\"\n", ":2: context a has no namenode"),
            ("[contexts.a]\nnamenode = \"http://a\"\n", ":2: \"http://a\" is a URL of http"),
            ("contexts = 3\n", ":1: contexts must be a table"),
            ("[contexts\n", ":1: "),
        ];
        for (text, wanted) in cases {
            let (_directory, path) = written(text);
            let error = Contexts::read(&path).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }

    #[test]
    fn open_file_is_refused_with_the_mend() {
        let (_directory, path) = written("");
        for mode in [0o644, 0o640, 0o602] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            let error = Contexts::read(&path).expect_err("others can read it");
            assert_eq!(error.next(), format!("chmod 600 {}", path.display()));
        }
        let path = PathBuf::from("/a b/$(c)'");
        let open = ContextError::Open { path: path.clone(), mode: 0o644 };
        assert_eq!(open.next(), r"chmod 600 '/a b/$(c)'\'''");
        let missing = ContextError::Io { path, cause: io::ErrorKind::IsADirectory.into() };
        assert_eq!(missing.next(), r"ls -l '/a b/$(c)'\'''");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_a_wait() {
        use rustix::fs::{CWD, Mode, mkfifoat};
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("contexts.toml");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("made");
        for (path, kind) in [(pipe.as_path(), "a pipe"), (directory.path(), "a directory")] {
            let error = Contexts::read(path).expect_err(kind);
            assert!(error.to_string().contains(kind), "{error}");
            assert_eq!(error.next(), format!("ls -ld {}, then move it away", path.display()));
        }
        let changed = Contexts::update(&pipe, |it| it.add("prod", prod(), false));
        assert!(matches!(changed, Err(ContextError::NotRegular { .. })));
    }

    #[test]
    fn file_of_another_user_is_refused() {
        let (_directory, path) = written("");
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_ok() {
            let error = Contexts::read(&path).expect_err("it is another user's");
            assert!(matches!(error, ContextError::Foreign { owner: 65_534, .. }), "{error}");
            std::os::unix::fs::chown(&path, Some(0), None).expect("given back");
        }
        Contexts::read(&path).expect("it is ours");
    }

    #[test]
    fn relative_directory_is_refused() {
        let of = |all: &'static [(&str, &str)]| {
            file(&|name| all.iter().find(|(known, _)| *known == name).map(|(_, text)| text.into()))
        };
        let error =
            of(&[("SANDERLING_CONFIG_HOME", "here"), ("HOME", "/h")]).expect_err("relative");
        assert!(matches!(error, ContextError::RelativeHome { .. }), "{error}");
        assert!(matches!(of(&[("XDG_CONFIG_HOME", "x")]), Err(ContextError::NoHome)));
        let home = of(&[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]).expect("a home");
        assert_eq!(home, Path::new("/h/.config/sanderling/contexts.toml"));
        let own = of(&[("SANDERLING_CONFIG_HOME", "/c"), ("HOME", "/h")]).expect("its own");
        assert_eq!(own, Path::new("/c/contexts.toml"));
    }

    #[test]
    fn many_changes_at_once_are_all_kept() {
        let (_directory, path) = written("");
        std::thread::scope(|scope| {
            for at in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let name = format!("c{at}");
                    Contexts::update(path, |it| it.add(&name, prod(), false)).expect("added");
                });
            }
        });
        assert_eq!(Contexts::read(&path).expect("whole").all().len(), 8);
    }
}
