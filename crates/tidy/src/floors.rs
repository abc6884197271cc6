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
const BASE_AND_CLIENT: &[&str] = &["protocol", "core", "transport", "client"];
const OF_COMMAND: &[&str] = &["protocol", "core", "transport", "client", "context", "otlp"];
const ALL: &[&str] = &[
    "protocol",
    "core",
    "transport",
    "notices",
    "namenode",
    "datanode",
    "client",
    "manager",
    "gateway",
    "sim",
];
const NATIVE: &[&str] = &["protocol", "transport", "client", "context", "otlp"];
/// What experiments see of the product: its clients' side, and the simulated world.
const MEASURING: &[&str] = &["protocol", "core", "transport", "client", "sim", "command", "plot"];
/// What runs tasks stores their checkpoints as a client, or in a bucket as the object tier does.
const OF_TASKS: &[&str] =
    &["protocol", "core", "transport", "notices", "datanode", "client", "context", "command"];
/// A command of the product that calls a cluster, without servers.
const COMMAND: &[&str] = &["protocol", "core", "transport", "client", "context", "command"];
/// It shows events in the words of `sanderling events`.
const OF_TOP: &[&str] = &["protocol", "core", "transport", "client", "command", "events"];
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
const OF_LOCAL: &[&str] =
    &["protocol", "core", "transport", "client", "context", "command", "keys"];
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
    Floor { name: "context", number: 2, imports: &[] },
    Floor { name: "plot", number: 0, imports: &[] },
    Floor { name: "console", number: 1, imports: &["plot"] },
    Floor { name: "otlp", number: 3, imports: &["transport"] },
    Floor { name: "notices", number: 2, imports: &["protocol", "core"] },
    Floor { name: "namenode", number: 3, imports: OF_NAMENODE },
    Floor { name: "datanode", number: 3, imports: BASE_AND_NOTICES },
    Floor { name: "client", number: 3, imports: BASE },
    Floor { name: "manager", number: 4, imports: BASE },
    Floor { name: "gateway", number: 4, imports: BASE_AND_CLIENT },
    Floor { name: "object-store", number: 4, imports: &["protocol", "core", "client"] },
    Floor { name: "object-store-013", number: 4, imports: &["protocol", "core", "client"] },
    Floor { name: "sim", number: 4, imports: &["protocol", "core"] },
    Floor { name: "command", number: 5, imports: OF_COMMAND },
    Floor { name: "lab", number: 6, imports: MEASURING },
    Floor { name: "bench", number: 6, imports: COMMAND },
    Floor { name: "task", number: 6, imports: OF_TASKS },
    Floor { name: "events", number: 6, imports: COMMAND },
    Floor { name: "keys", number: 6, imports: COMMAND },
    Floor { name: "serve", number: 6, imports: OF_SERVE },
    Floor { name: "top", number: 7, imports: OF_TOP },
    Floor { name: "local", number: 7, imports: OF_LOCAL },
    Floor { name: "doctor", number: 8, imports: OF_DOCTOR },
    Floor { name: "cli", number: 9, imports: COMMANDS },
    Floor { name: "tidy", number: 0, imports: &[] },
    Floor { name: "fuzz", number: 5, imports: ALL },
    Floor { name: "native", number: 4, imports: NATIVE },
    Floor { name: "jni", number: 10, imports: &["protocol", "client", "native"] },
    Floor { name: "python", number: 10, imports: &["protocol", "client", "native", "cli", "plot"] },
];

/// Checks every `Cargo.toml` of the workspace's members.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Problem> {
    let manifests = files.iter().filter(|file| {
        file.path.ends_with("/Cargo.toml")
            && (file.path.starts_with("crates/") || file.path.starts_with("bindings/"))
    });
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut section = String::new();
    let mut name = String::new();
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            title.trim_end_matches(']').clone_into(&mut section);
        } else if section == "package" && line.starts_with("name") {
            name = line.split('"').nth(1).unwrap_or_default().replace("sanderling-", "");
            if !FLOORS.iter().any(|floor| floor.name == name) {
                let what = format!("crate {name} has no floor: give it one in crates/tidy");
                problems.push(Problem::new(&file.path, index + 1, what));
                return problems;
            }
        } else if let Some(import) = line.strip_prefix("sanderling-") {
            let import = import.split(['.', ' ', '=']).next().unwrap_or_default();
            if section.ends_with("dependencies") && !may_import(&name, import, &section) {
                let what = format!("crate {name} may not import {import}: it is not below it");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
    }
    problems
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
    fn crate_without_a_floor_is_a_problem() {
        assert_eq!(check(&[manifest("attic", "dependencies", "protocol")]).len(), 1);
    }
}
