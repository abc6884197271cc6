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
/// What experiments see of the product: its clients' side, the way of its object tier to a bucket,
/// and the simulated world.
const MEASURING: &[&str] =
    &["protocol", "core", "transport", "datanode", "client", "sim", "command", "plot"];
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
/// It reads the flags of the servers, and checks the durable stores of a file.
const OF_CONFIG: &[&str] = &["context", "command", "serve"];
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
    "config",
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
    Floor { name: "config", number: 7, imports: OF_CONFIG },
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

/// The page with the table of floors.
pub const PAGE: &str = "docs/ARCHITECTURE.md";

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

/// Finds crates of which the page has no row `| floor | crates | what | may import |`, or one that
/// contradicts [`FLOORS`].
#[must_use]
pub fn check_page(files: &[SourceFile]) -> Vec<Problem> {
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| &file.text);
    let found = FLOORS.iter().filter_map(|floor| contradiction(page, floor));
    found.map(|what| Problem::new(PAGE, 0, what)).collect()
}

/// Returns what the page lacks or states otherwise of a crate. Crates at the side, and those that
/// no other imports, have no number there.
fn contradiction(page: &str, floor: &Floor) -> Option<String> {
    let name = floor.name;
    let mut rows = page.lines().filter_map(cells);
    let is_own = |crates: &str| {
        let mut names = crates.split('`').skip(1).step_by(2);
        names.any(|it| it.trim_start_matches("bindings/").replace('_', "-") == name)
    };
    let Some([number, _, _, imports]) = rows.find(|row| is_own(row[1])) else {
        return Some(format!("crate {name} has no row in the table of floors"));
    };
    if number.parse::<u8>().is_ok_and(|number| number != floor.number) {
        return Some(format!("crate {name} is on floor {}, not {number}", floor.number));
    }
    let is_stated = |import: &str| floor_of(import).is_some_and(|it| allows(imports, it));
    if let Some(import) = floor.imports.iter().find(|import| !is_stated(import)) {
        return Some(format!("crate {name} may import {import}, which its row does not state"));
    }
    let mut named = imports.split(", ").filter(|part| floor_of(part).is_some());
    let import = named.find(|import| !floor.imports.contains(import))?;
    Some(format!("crate {name} may not import {import}, which its row states"))
}

/// Returns the cells of a row of four.
fn cells(line: &str) -> Option<[&str; 4]> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    cells.try_into().ok()
}

/// Returns whether a cell as `0-2, client` or `0-4 without client` allows an import. A range of
/// floors stands for what a crate needs of them.
fn allows(cell: &str, import: &Floor) -> bool {
    cell.split(", ").any(|part| {
        let (range, without) = part.split_once(" without ").unwrap_or((part, ""));
        let ends = range
            .split_once('-')
            .and_then(|(from, to)| Some((from.parse::<u8>().ok()?, to.parse::<u8>().ok()?)));
        match ends {
            Some((from, to)) => {
                (from..=to).contains(&import.number)
                    && !without.split(" and ").any(|name| name == import.name)
            }
            None => part == import.name,
        }
    })
}

fn floor_of(name: &str) -> Option<&'static Floor> {
    FLOORS.iter().find(|floor| floor.name == name)
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
    let (Some(floor), Some(imported)) = (floor_of(name), floor_of(import)) else { return false };
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
    fn row_of_the_page_that_contradicts_the_floors_is_a_problem() {
        let found = |row: &str, name| contradiction(row, floor_of(name).unwrap());
        let row = "| 2 | `context`, `notices` | addresses | protocol |\n";
        assert_eq!(found(row, "context"), None);
        assert!(found(row, "notices").unwrap().contains("may import core"));
        assert!(found(row, "core").unwrap().contains("no row"));
        assert!(found("| 1 | `context` | a | protocol |\n", "context").is_some());
        for (imports, is_right) in
            [("0-1", true), ("0-1 without core", true), ("0-1 without protocol", false)]
        {
            let row = format!("| 2 | `context` | addresses | {imports} |\n");
            assert_eq!(found(&row, "context").is_none(), is_right, "{imports}");
        }
        let row = "| 2 | `context` | addresses | protocol, core |\n";
        assert!(found(row, "context").unwrap().contains("may not import core"));
        assert_eq!(check_page(&[]).len(), FLOORS.len());
    }

    #[test]
    fn crate_without_a_floor_is_a_problem() {
        assert_eq!(check(&[manifest("attic", "dependencies", "protocol")]).len(), 1);
    }
}
