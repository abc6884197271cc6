//! Servers of a cluster whose record cannot be read: the kernel has their command lines.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, test_kill_process};
use sanderling_command::failure::Failure;
use sanderling_command::refused::shell_word;

use super::directory::READY;

/// The flag of each server whose value is a file below the cluster's directory.
const READY_FLAG: &[u8] = b"--ready-file";

/// Adds to the failure of a record that cannot be read the servers of the cluster that still run,
/// and the command that ends them and deletes the record.
pub(super) fn with_servers(failure: Failure, directory: &Path, record: &Path) -> Failure {
    let deletion = format!("rm {}", shell_word(&record.to_string_lossy()));
    let servers = servers(&directory.join(READY));
    if servers.is_empty() {
        return failure
            .tried("looked for its servers: none was found; without the file the catalog stays")
            .next(deletion);
    }
    let named: Vec<String> = servers.iter().map(|(pid, name)| format!("{name} {pid}")).collect();
    let pids: Vec<String> = servers.iter().map(|(pid, _)| pid.to_string()).collect();
    let named = named.join(", ");
    // As `local stop` ends them: at once.
    failure
        .tried(format_args!(
            "looked for its servers: {named}; what only the datanodes have ends with them, the \
             catalog stays"
        ))
        .next(format_args!("kill -INT {} && {deletion}", pids.join(" ")))
}

/// Returns the pids and the names of the servers with a ready file in a directory that this user
/// may end, in the order of their pids.
fn servers(ready: &Path) -> Vec<(i32, String)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<(i32, String)> =
        processes.filter_map(|process| server(&process, ready)).collect();
    found.sort_unstable();
    found
}

/// Returns the pid and the name of a process if it is such a server. One that ends meanwhile is
/// none.
fn server(process: &DirEntry, ready: &Path) -> Option<(i32, String)> {
    let pid: i32 = process.file_name().to_str()?.parse().ok()?;
    let line = fs::read(process.path().join("cmdline")).ok()?;
    let name = name_in(&line, ready)?;
    test_kill_process(Pid::from_raw(pid)?).ok()?;
    Some((pid, name))
}

/// Returns the name of the server on a command line, whose words end with a zero byte each.
fn name_in(line: &[u8], ready: &Path) -> Option<String> {
    let mut words = line.split(|byte| *byte == 0).skip_while(|word| *word != READY_FLAG);
    let file = Path::new(OsStr::from_bytes(words.nth(1)?));
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(file.parent()?) != real(ready) {
        return None;
    }
    Some(file.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_found_by_its_ready_file() {
        let ready = Path::new("/none/a b/ready");
        let name = |line: &str| name_in(line.as_bytes(), ready);
        let line = "sanderling\0datanode\0--ready-file\0/none/a b/ready/datanode-0\0";
        assert_eq!(name(line).as_deref(), Some("datanode-0"));
        for other in [
            "",
            "sanderling\0datanode\0--ready-file\0",
            "sanderling\0datanode\0--ready-file\0/none/a b/ready2/datanode-0\0",
            "sanderling\0datanode\0--ready-file\0/none/a b/ready/below/datanode-0\0",
            "sh\0-c\0sanderling datanode --ready-file /none/a b/ready/datanode-0\0",
        ] {
            assert_eq!(name(other), None, "{other:?}");
        }
    }
}
