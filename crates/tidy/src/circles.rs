//! Circles: modules of one crate that import each other, directly or through others.
//!
//! None of the modules in a circle can be read, moved or tested without all others. A name that a
//! module has from another one (`use`) counts for the module that defines it. Large circles are
//! forbidden, and small ones are counted: no crate gets another one.

use std::collections::{BTreeMap, BTreeSet};

use crate::Problem;
use crate::code::split;
use crate::tree::{Language, SourceFile};

/// Most modules of a circle: a module, and the parts that it was cut into.
pub const MODULES_MAX: usize = 4;

/// The crates with circles of at most so many modules, and the number of those circles. It may only
/// shrink.
pub const ALLOWED: &str = "crates/tidy/circles.txt";

/// Checks the modules of every crate.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for file in files.iter().filter(|file| file.language == Language::Rust) {
        if let Some((directory, path)) = file.path.split_once("/src/")
            && (directory.starts_with("crates/") || directory.starts_with("bindings/"))
        {
            crates.entry(directory).or_default().add(path, &file.text);
        }
    }
    let list = files.iter().find(|file| file.path == ALLOWED).map_or("", |file| &file.text);
    let mut allowed = allowed(list);
    let mut problems = Vec::new();
    for (directory, found) in &crates {
        let circles = found.circles();
        for circle in circles.iter().filter(|circle| circle.len() > MODULES_MAX) {
            let (count, names) = (circle.len(), named(circle));
            let what = format!("{count} modules import each other, at most {MODULES_MAX}: {names}");
            problems.push(Problem::new(directory, 0, what));
        }
        let small: Vec<_> = circles.iter().filter(|it| it.len() <= MODULES_MAX).collect();
        let (line, count) = allowed.remove(directory).unwrap_or_default();
        let found = small.len();
        if found > count {
            let names: Vec<String> = small.into_iter().map(named).collect();
            let names = names.join("; ");
            let what = format!("circles of modules: {found}, at most {count}: {names}");
            problems.push(Problem::new(directory, 0, what));
        } else if found < count {
            problems.push(fewer(directory, line, found, count));
        }
    }
    let gone = allowed.into_iter();
    problems.extend(gone.map(|(directory, (line, count))| fewer(directory, line, 0, count)));
    problems
}

/// Reads lines of a crate's directory and a number; returns each directory's line and number.
fn allowed(list: &str) -> BTreeMap<&str, (usize, usize)> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let entries = lines.filter_map(|(index, line)| {
        let (directory, count) = line.split_once(' ')?;
        Some((directory, (index + 1, count.trim().parse().ok()?)))
    });
    entries.collect()
}

fn fewer(directory: &str, line: usize, found: usize, count: usize) -> Problem {
    let what = format!("{directory} has {found} circles of modules, not {count}: shrink the list");
    Problem::new(ALLOWED, line, what)
}

fn named(circle: &BTreeSet<Module>) -> String {
    let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
    names.join(", ")
}

/// A module's path below its crate; that of the crate itself is empty.
type Module = Vec<String>;

/// The modules of a crate, each with the paths that it names.
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Module, Named>,
}

/// What one module names.
#[derive(Default)]
struct Named {
    /// Every path, as it is written.
    paths: Vec<Vec<String>>,
    /// The paths of those that `use` brings, by the name that they get.
    uses: BTreeMap<String, Vec<String>>,
}

impl Crate {
    fn add(&mut self, path: &str, text: &str) {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let module: Module = match path {
            "lib" | "main" | "mod" => Module::new(),
            path => path.split('/').map(str::to_owned).collect(),
        };
        if module.iter().any(|name| name == "tests") {
            return;
        }
        let code = split(Language::Rust, text).code;
        let shipped = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let found = self.modules.entry(module).or_default();
        for (mut path, renamed, is_use) in paths(shipped) {
            if path.last().is_some_and(|last| last == "*" || last == "self") {
                path.pop();
            }
            if let Some(last) = path.last().filter(|_| is_use) {
                found.uses.insert(renamed.unwrap_or_else(|| last.clone()), path.clone());
            }
            found.paths.push(path);
        }
    }

    /// Returns the modules that cannot do without each other, in sets of two or more.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.modules.keys().map(|module| (module, self.imports(module))).collect();
        let reached = |start: &Module| {
            let mut reached = BTreeSet::new();
            let mut waiting = vec![start];
            while let Some(module) = waiting.pop() {
                for next in edges.get(module).into_iter().flatten() {
                    if reached.insert(next.clone()) {
                        waiting.push(next);
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> =
            edges.keys().map(|module| (*module, reached(module))).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            let both = others.iter().filter(|other| reached[other].contains(*module));
            let circle: BTreeSet<Module> = both.cloned().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Returns the other modules that define what a module names.
    fn imports(&self, module: &Module) -> BTreeSet<Module> {
        let paths = self.modules[module].paths.iter();
        let mut found: BTreeSet<Module> =
            paths.filter_map(|path| self.home(module, path, 0)).collect();
        found.retain(|other| other != module && self.modules.contains_key(other));
        found
    }

    /// Returns the module that defines what `path` names in `module`; `None` for what is of another
    /// crate.
    fn home(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        // A name that is imported in a circle of `use` would be followed for ever.
        const DEPTH_MAX: usize = 16;
        let (mut at, rest) = self.start(module, path)?;
        for (index, name) in rest.iter().enumerate() {
            let child: Module = at.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&child) {
                at = child;
                continue;
            }
            let brought = self.modules.get(&at).and_then(|it| it.uses.get(name));
            let Some(brought) = brought.filter(|_| depth < DEPTH_MAX) else { break };
            let whole: Vec<String> = brought.iter().chain(&rest[index + 1..]).cloned().collect();
            return self.home(&at, &whole, depth + 1);
        }
        Some(at)
    }

    /// Returns where a path begins, and what is left of it.
    fn start<'a>(&self, module: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
        match path.first()?.as_str() {
            "crate" => Some((Module::new(), &path[1..])),
            "self" => Some((module.clone(), &path[1..])),
            "super" => {
                let supers = path.iter().take_while(|name| *name == "super").count();
                let left = module.len().checked_sub(supers)?;
                Some((module[..left].to_vec(), &path[supers..]))
            }
            name => {
                let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
                self.modules.contains_key(&child).then(|| (child, &path[1..]))
            }
        }
    }
}

/// A path, the name that `as` gives it, and whether `use` brings it.
type Path = (Vec<String>, Option<String>, bool);

/// Returns the paths of more than one name in a text without comments and strings, and all of
/// `use`, those in braces one by one.
fn paths(code: &str) -> Vec<Path> {
    let words = words(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_use = words[at] == "use";
        at += usize::from(is_use);
        if is_name(words.get(at).copied().unwrap_or_default()) {
            let mut tree = Vec::new();
            at = read_tree(&words, at, &[], &mut tree);
            tree.retain(|(path, _)| is_use || path.len() > 1);
            found.extend(tree.into_iter().map(|(path, name)| (path, name, is_use)));
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path and the braces at its end; returns where it ends.
fn read_tree(
    words: &[&str],
    mut at: usize,
    before: &[String],
    found: &mut Vec<(Vec<String>, Option<String>)>,
) -> usize {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let mut path = before.to_vec();
    while is_name(word(at)) || word(at) == "*" {
        path.push(word(at).to_owned());
        at += 1;
        if word(at) != "::" {
            break;
        }
        at += 1;
        if word(at) == "{" {
            at += 1;
            while at < words.len() && word(at) != "}" {
                let next = read_tree(words, at, &path, found);
                at = if next == at { at + 1 } else { next };
            }
            return at + 1;
        }
    }
    let renamed = (word(at) == "as").then(|| word(at + 1).to_owned());
    at += if renamed.is_some() { 2 } else { 0 };
    if path.len() > before.len() {
        found.push((path, renamed));
    }
    at
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_') && word != "as"
}

/// Cuts code into names, `::`, and other characters, without the spaces.
fn words(code: &str) -> Vec<&str> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            _ if is_part(first) => rest.find(|char| !is_part(char)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(modules: &[(&str, &str)]) -> Vec<Problem> {
        let file =
            |(path, text): &(&str, &str)| SourceFile::new(&format!("crates/a/src/{path}.rs"), text);
        check(&modules.iter().map(file).collect::<Vec<_>>())
    }

    /// Each but the last imports the next.
    const CHAIN: [(&str, &str); 5] = [
        ("lib", "mod one;\nmod two;\n"),
        ("one", "use crate::two::Two;\n"),
        ("two", "use super::two::three::{self, Three as Other};\nmod three;\n"),
        ("two/three", "fn four() { crate::four::call() }\n"),
        ("four", "use crate::five::*;\n"),
    ];

    #[test]
    fn circle_of_many_modules_is_a_problem() {
        let mut modules = CHAIN.to_vec();
        modules.push(("five", "// use crate::one::One;\n"));
        assert_eq!(problems(&modules), []);
        *modules.last_mut().unwrap() = ("five", "use crate::{one::{One, Uno}, other};\n");
        let found = problems(&modules);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("5 modules"), "{}", found[0].what);
        assert!(found[0].what.contains("four, one, two, two::three"), "{}", found[0].what);
    }

    #[test]
    fn small_circle_is_a_problem_unless_it_was_there_before() {
        let with = |modules: &[(&str, &str)], list: &str| {
            let file = |(path, text): &(&str, &str)| {
                SourceFile::new(&format!("crates/a/src/{path}.rs"), text)
            };
            let mut files: Vec<SourceFile> = modules.iter().map(file).collect();
            files.push(SourceFile::new(ALLOWED, list));
            check(&files)
        };
        let one = [("one", "use crate::two::Two;\n"), ("two", "use crate::one::One;\n")];
        let found = with(&one, "");
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("circles of modules: 1, at most 0: one, two"));
        assert_eq!(with(&one, "# crate, circles\ncrates/a 1\n"), []);
        let more =
            [&one[..], &[("three", "use crate::four::A;"), ("four", "use crate::three::B;")]];
        assert_eq!(with(&more.concat(), "crates/a 1\n").len(), 1);
        assert_eq!(with(&more.concat(), "crates/a 2\n"), []);
        let shrunk = with(&one, "crates/a 2\n");
        assert_eq!((shrunk.len(), &*shrunk[0].path, shrunk[0].line), (1, ALLOWED, 1));
        assert_eq!(with(&one, "crates/a 1\ncrates/b 1\n")[0].path, ALLOWED);
    }

    #[test]
    fn name_counts_for_the_module_that_defines_it() {
        // All of them name what the crate's root brings from `five`.
        let mut modules: Vec<(&str, &str)> = vec![
            ("lib", "use one::One;\nuse two::Two;\npub use five::Five;\n"),
            ("one", "use crate::Five;\n"),
            ("two", "use super::Five;\n"),
            ("three", "use crate::one::Five;\n"),
            ("four", "use crate::three::Five;\n"),
            ("five", "pub struct Five;\n"),
        ];
        assert_eq!(problems(&modules), []);
        modules[0].1 = "use one::One;\nuse two::Two;\npub struct Five;\nuse three::A; use four::B;";
        assert_eq!(problems(&modules).len(), 1);
    }

    #[test]
    fn tests_are_left_out() {
        let mut modules = CHAIN.to_vec();
        modules.push(("five", "#[cfg(test)]\nmod tests {\n    use crate::one::One;\n}\n"));
        modules.push(("five/tests", "use crate::one::One;\n"));
        assert_eq!(problems(&modules), []);
    }
}
