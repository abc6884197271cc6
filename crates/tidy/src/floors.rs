//! Which crate may import which: a crate imports only crates on lower floors.

use crate::Problem;
use crate::tree::SourceFile;

/// One crate's place in the building.
pub struct Floor {
    /// The crate's name without `sanderling-`.
    pub name: &'static str,
    /// Counted from the ground.
    pub number: u8,
    /// Crates of this workspace that it may import.
    pub imports: &'static [&'static str],
}

const BASE: &[&str] = &["protocol", "core", "transport"];
const BASE_AND_NOTICES: &[&str] = &["protocol", "core", "transport", "notices"];
const OF_NAMENODE: &[&str] = &["protocol", "core", "transport", "notices", "console"];
const OF_GATEWAY: &[&str] = &["protocol", "transport", "client"];
const OF_COMMAND: &[&str] = &["protocol", "core", "transport", "client", "context", "otlp"];
/// The crates that parse what comes from outside.
const OF_FUZZ: &[&str] =
    &["protocol", "core", "transport", "notices", "namenode", "datanode", "gateway"];
const NATIVE: &[&str] = &["protocol", "transport", "client", "context", "otlp"];
/// What experiments see of the product: its clients' side, and the simulated world.
const MEASURING: &[&str] = &["protocol", "core", "transport", "client", "sim", "command", "plot"];
/// What runs tasks stores their checkpoints as a client, or in a bucket as the object tier does.
const OF_TASKS: &[&str] =
    &["protocol", "core", "transport", "notices", "datanode", "client", "context", "command"];
const OF_BENCH: &[&str] = &["protocol", "transport", "client", "command"];
const OF_EVENTS: &[&str] = &["protocol", "client", "command"];
/// It calls the cluster through the session that commands share.
const OF_KEYS: &[&str] = &["protocol", "core", "transport", "command"];
/// It shows events in the words of `sanderling events`.
const OF_TOP: &[&str] = &["protocol", "client", "command", "events"];
/// The command lines of all servers.
const OF_SERVE: &[&str] = &[
    "protocol",
    "core",
    "transport",
    "notices",
    "namenode",
    "datanode",
    "client",
    "manager",
    "gateway",
    "context",
    "command",
];
/// It makes the keys of a secure cluster; servers are processes of the same binary.
const OF_LOCAL: &[&str] = &["protocol", "core", "transport", "client", "command", "keys"];
/// It finds the cluster on this machine, and the drivers of tasks.
const OF_DOCTOR: &[&str] =
    &["protocol", "core", "transport", "namenode", "client", "command", "task", "local"];
/// The binary joins the crates with commands; servers it starts through `serve` alone.
const COMMANDS: &[&str] = &[
    "protocol",
    "transport",
    "namenode",
    "client",
    "context",
    "command",
    "task",
    "events",
    "keys",
    "serve",
    "top",
    "local",
    "doctor",
    "lab",
    "bench",
];

/// The floors, the lowest first. A new crate gets its line here before it gets its first import.
pub const FLOORS: &[Floor] = &[
    Floor { name: "protocol", number: 0, imports: &[] },
    Floor { name: "core", number: 1, imports: &["protocol"] },
    Floor { name: "transport", number: 2, imports: &["protocol", "core"] },
    Floor { name: "context", number: 2, imports: &["protocol"] },
    Floor { name: "plot", number: 0, imports: &[] },
    Floor { name: "console", number: 1, imports: &["plot"] },
    Floor { name: "otlp", number: 3, imports: &["transport"] },
    Floor { name: "notices", number: 2, imports: &["protocol", "core"] },
    Floor { name: "namenode", number: 3, imports: OF_NAMENODE },
    Floor { name: "datanode", number: 3, imports: BASE_AND_NOTICES },
    Floor { name: "client", number: 3, imports: BASE },
    Floor { name: "manager", number: 4, imports: BASE },
    Floor { name: "gateway", number: 4, imports: OF_GATEWAY },
    Floor { name: "object-store", number: 4, imports: &["protocol", "core", "client"] },
    Floor { name: "object-store-013", number: 4, imports: &["protocol", "core", "client"] },
    Floor { name: "sim", number: 4, imports: &["protocol", "core"] },
    Floor { name: "command", number: 5, imports: OF_COMMAND },
    Floor { name: "lab", number: 6, imports: MEASURING },
    Floor { name: "bench", number: 6, imports: OF_BENCH },
    Floor { name: "task", number: 6, imports: OF_TASKS },
    Floor { name: "events", number: 6, imports: OF_EVENTS },
    Floor { name: "keys", number: 6, imports: OF_KEYS },
    Floor { name: "serve", number: 6, imports: OF_SERVE },
    Floor { name: "top", number: 7, imports: OF_TOP },
    Floor { name: "local", number: 7, imports: OF_LOCAL },
    Floor { name: "doctor", number: 8, imports: OF_DOCTOR },
    Floor { name: "cli", number: 9, imports: COMMANDS },
    Floor { name: "tidy", number: 0, imports: &[] },
    Floor { name: "fuzz", number: 5, imports: OF_FUZZ },
    Floor { name: "native", number: 4, imports: NATIVE },
    Floor { name: "jni", number: 10, imports: &["protocol", "client", "native"] },
    Floor { name: "python", number: 10, imports: &["protocol", "client", "native", "cli", "plot"] },
];

/// One import in a `Cargo.toml`.
struct Import<'a> {
    /// Its line, counted from 1.
    line: usize,
    /// The table that it is in.
    section: &'a str,
    /// The crate's name without `sanderling-`.
    name: &'a str,
}

/// Checks every `Cargo.toml` of the workspace's members.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    manifests(files).flat_map(check_manifest).collect()
}

/// Finds imports that [`FLOORS`] allows and no `Cargo.toml` has: the first one there would pass
/// without a look at the floors. Tests need no allowance.
#[must_use]
pub fn check_allowances(files: &[SourceFile]) -> Vec<Problem> {
    let is_used = |name: &str, import: &str| {
        let own = manifests(files).filter(|file| name_of(file).is_some_and(|(_, it)| it == name));
        let mut imports = own.flat_map(imports_of);
        imports.any(|it| it.name == import && !it.section.ends_with("dev-dependencies"))
    };
    let mut problems = Vec::new();
    for floor in FLOORS {
        for &import in floor.imports {
            if !is_used(floor.name, import) {
                let what = format!("{} may import {import} and does not: remove it", floor.name);
                problems.push(Problem::new("crates/tidy/src/floors.rs", 0, what));
            }
        }
    }
    problems
}

fn manifests(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| {
        file.path.ends_with("/Cargo.toml")
            && (file.path.starts_with("crates/") || file.path.starts_with("bindings/"))
    })
}

fn check_manifest(file: &SourceFile) -> Vec<Problem> {
    let (line, name) = name_of(file).unwrap_or_default();
    if !FLOORS.iter().any(|floor| floor.name == name) {
        let what = format!("crate {name} has no floor: give it one in crates/tidy");
        return vec![Problem::new(&file.path, line, what)];
    }
    let forbidden = imports_of(file).filter(|it| !may_import(name, it.name, it.section));
    let problem = |import: Import<'_>| {
        let what = format!("crate {name} may not import {}: it is not below it", import.name);
        Problem::new(&file.path, import.line, what)
    };
    forbidden.map(problem).collect()
}

/// Returns the line of a manifest that names the crate, and the name without `sanderling-`.
fn name_of(file: &SourceFile) -> Option<(usize, &str)> {
    let mut section = "";
    file.text.lines().enumerate().find_map(|(index, line)| {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']');
        }
        let is_name = section == "package" && line.starts_with("name");
        let name = line.split('"').nth(1).filter(|_| is_name)?;
        Some((index + 1, name.strip_prefix("sanderling-").unwrap_or(name)))
    })
}

fn imports_of(file: &SourceFile) -> impl Iterator<Item = Import<'_>> {
    let mut section = "";
    file.text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']');
        }
        let name = line.strip_prefix("sanderling-")?.split(['.', ' ', '=']).next()?;
        section.ends_with("dependencies").then_some(Import { line: index + 1, section, name })
    })
}

/// The lowest and the highest floor of servers and their clients.
const SHELLS: [u8; 2] = [3, 4];

/// Returns whether `name` may import `import`. Its tests, which no other crate links, may import
/// whatever does not stand above it; a shell is tested against all other shells.
fn may_import(name: &str, import: &str, section: &str) -> bool {
    let find = |name: &str| FLOORS.iter().find(|floor| floor.name == name);
    let (Some(floor), Some(imported)) = (find(name), find(import)) else { return false };
    let top = if SHELLS.contains(&floor.number) { SHELLS[1] } else { floor.number };
    floor.imports.contains(&import) || section == "dev-dependencies" && imported.number <= top
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, section: &str, import: &str) -> SourceFile {
        let text = format!(
            "[package]\nname = \"sanderling-{name}\"\n[{section}]\n\
             sanderling-{import}.workspace = true\nserde.workspace = true\n"
        );
        SourceFile::new(&format!("crates/{name}/Cargo.toml"), &text)
    }

    #[test]
    fn import_of_a_higher_floor_is_a_problem() {
        let file = manifest("core", "dependencies", "transport");
        assert_eq!(check(&[file])[0].line, 4);
        let file = manifest("datanode", "dependencies", "namenode");
        assert_eq!(check(&[file]).len(), 1);
        let file = manifest("client", "dev-dependencies", "cli");
        assert_eq!(check(&[file]).len(), 1);
    }

    #[test]
    fn import_of_a_lower_floor_is_none() {
        assert_eq!(check(&[manifest("core", "dependencies", "protocol")]), []);
        assert_eq!(check(&[manifest("tidy", "dev-dependencies", "protocol")]), []);
        assert_eq!(check(&[manifest("client", "dev-dependencies", "manager")]), []);
        assert_eq!(check(&[manifest("manager", "dev-dependencies", "namenode")]), []);
    }

    #[test]
    fn listed_imports_are_on_lower_floors() {
        for floor in FLOORS {
            for import in floor.imports {
                let imported = FLOORS.iter().find(|it| it.name == *import);
                let is_lower = imported.is_some_and(|it| it.number < floor.number);
                assert!(is_lower, "{import} is not below {}", floor.name);
            }
        }
    }

    #[test]
    fn allowance_without_an_import_is_a_problem() {
        let unused = |section| check_allowances(&[manifest("core", section, "protocol")]).len();
        assert_eq!(unused("dev-dependencies"), unused("dependencies") + 1);
    }

    #[test]
    fn crate_without_a_floor_is_a_problem() {
        assert_eq!(check(&[manifest("attic", "dependencies", "protocol")]).len(), 1);
    }
}
