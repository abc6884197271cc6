//! Mistakes that people make at the command line. Each fails with its cause and with what was
//! tried, and every command of its `next:` line is run: it has to work.
//!
//! `SHOW=1` prints every command with its answer.

use crate::cluster;
use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;

use crate::cluster::{Ran, Starting, bytes_of, run, sanderling};
use serde_json::Value;
use tempfile::TempDir;

/// What the commands of a `next:` line have to do.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// Each ends with 0.
    Works,
    /// Each ends with this code, as a look at what is wrong does.
    Ends(i32),
    /// Each starts a server, which serves until it is ended.
    Serves,
    /// Each does what stands at its place.
    Each(&'static [Self]),
    /// There is no command in it, for this reason.
    Unrun(&'static str),
}

use Next::{Each, Ends, Serves, Unrun, Works};

/// One mistake: the command line, its exit code, words of its cause, words of its `next:` line.
type Mistake = (&'static str, i32, &'static [&'static str], &'static str, Next);

/// The exit code of a wrong command line. Nothing was tried then but what was typed, so that
/// failures with this code need no `tried:` line; all others do.
const WRONG_COMMAND_LINE: i32 = 2;

/// The programs that `next:` lines begin with. An alternative that begins otherwise is prose.
const PROGRAMS: [&str; 7] = ["sanderling", "cat", "chmod", "df", "head", "ls", "mkdir"];

/// How alternatives begin that are no commands.
const PROSE: [&str; 2] = ["the same with ", "--ready-file FILE of "];

/// The cluster of the mistakes has no disk, and too little room for a measurement: the command is
/// right, and that is its answer.
const NO_DISK: Next = Ends(4);
const NO_ROOM: Next = Ends(4);

/// A small cluster, at free ports.
const SMALL: &str = "sanderling local start --port 0 --datanodes 1 --dram 24MiB";

/// Mistakes about objects and paths.
#[rustfmt::skip]
const OBJECTS: &[Mistake] = &[
    ("fs cat /none", 3, &["/none does not exist"], "sanderling fs ls /", Works),
    ("fs cat /x/y/z", 3, &["/x"], "sanderling fs ls /", Works),
    ("fs ls /d/none/deeper", 3, &["/d/none"], "sanderling fs ls /d", Works),
    ("fs stat /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs get /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs rm /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs du /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs tree /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs attr /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs cat a", 2, &["starts with /"], "sanderling fs cat /a", Works),
    ("fs cat hdfs://nn:8020/a", 2, &["it is a URL", "is needed, such as /a"],
     "sanderling fs cat /a", Works),
    ("fs put f3 b", 2, &["starts with /"], "sanderling fs put f3 /b", Works),
    ("fs cat /d", 1, &["is a directory"], "sanderling fs ls /d", Works),
    ("fs get /d", 1, &["is a directory"], "sanderling fs get /d --recursive", Works),
    ("fs put tree /p14", 1, &["tree is a directory"], "--recursive", Works),
    ("fs put f3 /a", 1, &["/a exists"], "sanderling fs put f3 /a --force", Works),
    ("fs mkdir /d", 1, &["/d exists"], "sanderling fs mkdir /d --parents", Works),
    ("fs mkdir /a", 1, &["/a exists"], "sanderling fs stat /a", Works),
    ("fs mkdir /m18/b/c", 3, &["/m18"], "sanderling fs mkdir /m18/b/c --parents", Works),
    ("fs put f3 /m19/b/c", 3, &["/m19"], "sanderling fs put f3 /m19/b/c --parents", Works),
    ("fs mv /a /m20/b", 3, &["/m20"], "sanderling fs mkdir -p /m20", Works),
    ("fs mv /none /b21", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs mv /b22 /c22", 1, &["/c22 exists"], "sanderling fs mv /b22 /c22 --force", Works),
    ("fs mv /d /d/sub", 1, &["into itself"], "sanderling fs ls /d", Works),
    ("fs rm /d24", 1, &["not empty"], "sanderling fs rm -r /d24", Works),
    ("fs rm -r ''", 2, &["bad path"], "sanderling fs rm --help", Works),
    ("fs ls /a/x", 1, &["not a directory"], "sanderling fs stat /a", Works),
    ("fs put f3 /a/x", 1, &["not a directory"], "sanderling fs stat /a", Works),
    ("fs put f3 /none29/", 3, &["/none29"], "sanderling fs mkdir -p /none29", Works),
    ("fs put f3 f4 /a", 1, &["not a directory"], "sanderling fs stat /a", Works),
    ("fs put nofile /x", 3, &["nofile", "No such file"], "ls .", Works),
    ("fs put nodir/nofile /x", 3, &["nodir/nofile"], "ls .", Works),
    ("fs put /proc/none/x /x", 3, &["/proc/none/x"], "ls /proc", Works),
    ("fs put f4/x /x", 1, &["f4/x: Not a directory"], "ls -ld f4", Works),
    ("fs get /a f4/x", 3, &["f4 is no directory"], "ls -ld f4", Works),
    ("fs get /a f4/x/y", 3, &["f4/x is no directory"], "ls -ld f4", Works),
    // The kernel makes no files there for any user.
    ("fs get /a /sys/x66", 1, &["/sys/x66: "], " /sys", Works),
    ("fs get /a nodir34/x", 3, &["nodir34 is no directory"], "mkdir -p nodir34", Works),
    ("fs get /a f4", 1, &["f4 exists"], "sanderling fs get /a f4 --force", Works),
    ("fs cat '/z*'", 3, &["no object matches"], "sanderling fs ls /", Works),
    ("fs cat '/d/z*'", 3, &["no object matches"], "sanderling fs ls /d", Works),
    ("fs get '/d/*' nodir38", 3, &["nodir38 is no directory"], "mkdir -p nodir38", Works),
    ("fs cat '/['", 2, &["bad pattern"], "sanderling fs cat '/[[]'", Works),
    ("fs rm '/run[1'", 2, &["bad pattern"], "sanderling fs rm '/run[[]1'", Works),
    ("--context local fs cat a", 2, &["starts with /"],
     "sanderling --context local fs cat /a", Works),
    ("--context none93 fs ls /", 3, &["no context \"none93\""], "sanderling context ls", Works),
    ("fs cat /a --offset 99999999", 1, &["passes the end"], "sanderling fs stat /a", Works),
    ("fs cat /a --offset -1", 2, &["'-1'", "negative"], "sanderling fs cat /a --offset 1", Works),
    ("fs cp /none /b42", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs cp /a /d/x", 1, &["/d/x exists"], "sanderling fs cp /a /d/x --force", Works),
    ("fs cp /d /e44", 1, &["is a directory"], "sanderling fs cp /d /e44 --recursive", Works),
    ("fs cp -r /d /d/e45", 1, &["into itself"], "sanderling fs ls /d", Works),
    ("fs cp /a /a", 1, &["same object"], "sanderling fs stat /a", Works),
    ("fs cp /a /m47/x", 3, &["/m47"], "sanderling fs cp /a /m47/x --parents", Works),
    ("fs concat /none /whole", 3, &["/none"], "sanderling fs ls /", Works),
    ("fs attr /a x", 2, &["NAME=TEXT"],
     "sanderling fs attr /a, or sanderling fs attr /a x=TEXT", Works),
    ("fs attr /a long=$(head -c 9000 /dev/zero | tr '\\0' x)", 1, &["too large"],
     "sanderling fs attr /a", Works),
    ("fs put big /big", 4, &["no room for", "free on datanode-", "/big of 57.2 MiB"],
     "sanderling fs df", Works),
    ("fs put big /big --class dram:refuse", 4, &["no room for", "class dram:refuse"],
     "sanderling fs df", Works),
    ("fs cp /d/y /big/x -p --force --class gold", 2, &["unknown storage class"],
     "sanderling fs cp /d/y /big/x -p --force --class dram", Works),
    ("fs put f4 /b53 --force --class gold", 2, &["unknown storage class"],
     "dram, or sanderling fs put f4 /b53 --force --class disk", Each(&[Works, NO_DISK])),
    ("fs put f4 /b54 --ttl 5x", 2, &["no unit"], "sanderling fs put f4 /b54 --ttl 5s", Works),
    ("fs put f4 /b55 --ttl -5s", 2, &["-5s", "out of range"],
     "sanderling fs put f4 /b55 --ttl 5s", Works),
    ("fs put f4 /b56 --ttl 1e19s", 2, &["1e19s", "the longest is 36500d"],
     "sanderling fs put f4 /b56 --ttl 36500d", Works),
    ("fs put f4", 2, &["not provided: <PATH>"], "sanderling fs put f4 /f4", Works),
    ("fs put f4 --force", 2, &["not provided: <PATH>"], "sanderling fs put f4 /f4 --force", Works),
    ("fs lss /", 2, &["unrecognized subcommand 'lss'"], "sanderling fs ls /", Works),
    ("fs copy /a /b59", 2, &["unrecognized subcommand 'copy'"], "sanderling fs cp /a /b59", Works),
    ("fs ls --recurse /", 2, &["--recurse"], "sanderling fs ls --recursive /", Works),
    ("fs put f3 /b62 --tll=5s", 2, &["--tll"], "sanderling fs put f3 /b62 --ttl=5s", Works),
    ("fs mkdir /../x63", 2, &["bad path"], "sanderling fs mkdir /x63", Works),
    ("fs mkdir //x64", 2, &["bad path"], "sanderling fs mkdir /x64", Works),
    ("fs mkdir /$(head -c 256 /dev/zero | tr '\\0' x)", 2, &["longer than 255"],
     "names of at most 255 bytes", Unrun("only its reader can shorten the name")),
];

/// Mistakes about nodes, jobs and the way to the cluster.
#[rustfmt::skip]
const CLUSTER: &[Mistake] = &[
    ("node notice absent --deadline 30s", 3, &["absent"], "sanderling node ls --all", Works),
    ("node cancel datanode-0", 1, &["not draining"], "sanderling node ls --all", Works),
    ("node decommission absent", 3, &["absent"], "sanderling node ls --all", Works),
    ("node recommend absent", 3, &["absent"], "sanderling node ls --all", Works),
    ("node ls --al", 2, &["--al"], "sanderling node ls --all", Works),
    ("job renew 99", 3, &["job 99"], "sanderling job ls", Works),
    ("job end /none", 3, &["/none"], "sanderling fs ls /", Works),
    ("job renew x", 2, &["a number, or a path"], "sanderling job ls", Works),
    ("job new /d", 1, &["/d", "starts empty"], "sanderling fs stat /d", Works),
    ("job new /j80 --quota lots", 2, &["lots"], "sanderling job new /j80 --quota 1GiB", Works),
    ("fs put f3 /j81/x", 1, &["quota", "1.00 MiB", "2.86 MiB requested"],
     "sanderling job ls", Works),
    ("fs mv /a /j81/a", 1, &["different jobs"], "sanderling fs cp -r /a /j81/a", Ends(1)),
    ("--namenode nohost.invalid:1 fs ls /", 4, &["nohost.invalid:1 cannot be reached"],
     "sanderling fs ls / --namenode 127.0.0.1:", Works),
    ("--namenode 127.0.0.1:1 fs ls /", 4, &["connection refused"],
     "sanderling fs ls / --namenode 127.0.0.1:", Works),
    ("--namenode 127.0.0.2:1 fs ls /", 4, &["127.0.0.2:1", "connection refused"],
     "sanderling fs ls / --namenode 127.0.0.1:", Works),
    ("--namenode $DATANODE fs ls /", 1, &["not a namenode's address"],
     "sanderling fs ls / --namenode 127.0.0.1:", Works),
    ("fs ls / --timeout x", 2, &["does not begin with a number"],
     "sanderling fs ls / --timeout 30s", Works),
    ("--token-file none fs ls /", 3, &["none", "No such file"], "ls .", Works),
    ("--tls-ca none fs ls /", 3, &["none", "No such file"], "ls .", Works),
    ("--tls-ca f4 fs ls /", 1, &["f4"], "head -n 1 f4", Works),
    ("--token-file tree fs ls /", 1, &["tree: Is a directory"], "ls -ld tree", Works),
    ("--token-file f4/x fs ls /", 1, &["f4/x: Not a directory"], "ls -ld f4", Works),
    ("--tls-ca tree fs ls /", 1, &["tree: Is a directory"], "ls -ld tree", Works),
    ("group remove x", 2, &["'x'"], "sanderling group remove --help", Works),
    ("group remove 99", 1, &["alone"], "sanderling group remove --help", Works),
    ("group move-leader 7", 1, &["alone"], "sanderling group move-leader --help", Works),
    ("task ls --backend d", 2, &["starts with /"], "sanderling task ls --backend /d", Works),
    ("task predict", 2, &["--rss"], "sanderling task predict --rss 1GiB", NO_ROOM),
    ("task run true", 2, &["'true'"], "sanderling task run --help", Works),
    ("namenode backup --to b80 --http 127.0.0.1:1", 4, &["127.0.0.1:1 cannot be reached"],
     "sanderling namenode backup --to b80 --http ADDRESS", Works),
    ("namenode restore --from none --dir r81", 3, &["none: No such file"], "ls .", Works),
    ("namenode restore --from f4 --dir r82", 1, &["f4 was not restored"], "another backup",
     Unrun("only its reader has another backup")),
    ("namenode restore --from backup --dir tree", 1, &["tree holds x"],
     "sanderling namenode restore --from backup --dir DIR", Works),
    ("namenode recover --archive none --dir r84", 3, &["none: No such file"], "ls .", Works),
    ("namenode recover --archive tree --dir r85", 1, &["holds no catalog"], "--archive",
     Unrun("only its reader can find the archive")),
    ("doctor --dram 900TiB", 1, &["checks fails"], "sanderling doctor --dram ", Works),
];

/// Mistakes about processes, keys and the program.
#[rustfmt::skip]
const PROCESSES: &[Mistake] = &[
    ("local statu", 2, &["'statu'"], "sanderling local status", Works),
    ("local restart absent", 3, &["no process absent"], "sanderling local status", Works),
    ("local add --dram 1", 1, &["at least 4.00 KiB"], "cat ", Works),
    ("token new --cluster any", 2, &["--secret-file"],
     "sanderling token new --cluster any --secret-file FILE, or sanderling token secret", Works),
    ("token new --cluster any --secret-file none", 3, &["none", "No such file"], "ls .", Works),
    ("token new --cluster any --secret-file open", 1, &["open"], "chmod 600 open", Works),
    ("token secret --out open", 1, &["open", "File exists"], "--out open.new", Works),
    ("token new --cluster any --secret-file secret --rights fly", 2, &["no right"],
     "--secret-file secret --rights read,write", Works),
    ("token new --cluster any --secret-file secret --role datanode --rights metrics", 2,
     &["leave --rights out"],
     "sanderling token new --cluster any --secret-file secret --role datanode", Works),
    ("token new --cluster any --secret-file secret --expires 999d", 2, &["365 days"],
     "sanderling token new --cluster any --secret-file secret --expires 365d", Works),
    ("tls new --out open", 1, &["open: File exists"], "ls -ld open", Works),
    ("help nonsense", 2, &["nonsense"], "sanderling help node", Works),
    ("completions tcsh", 2, &["tcsh"], "sanderling completions zsh", Works),
    ("frobnicate", 2, &["frobnicate"], "sanderling --help", Works),
    ("fs ls / -z", 2, &["-z"], "sanderling fs ls --help", Works),
    ("fsck --verify", 2, &["--deep"], "sanderling fsck --verify --deep", Works),
];

/// Mistakes at the start of a server. The first has a look at the cluster, before the servers that
/// are started here have left it without notice.
#[rustfmt::skip]
const SERVERS: &[Mistake] = &[
    ("namenode --dir n1 --listen $SANDERLING_NAMENODE", 1, &["in use"],
     "--listen 127.0.0.1:0 --http 127.0.0.1:0", Each(&[Serves, Works])),
    ("namenode", 2, &["--dir"], "sanderling namenode --dir catalog", Serves),
    ("namenode --dir f4", 1, &["f4: Not a directory"], "ls -ld f4", Works),
    ("namenode --dir $LOCAL/namenode --listen 127.0.0.1:0 --http none", 1,
     &["in use by another namenode"], "--dir DIR", Serves),
    ("namenode --dir n2 --preemption-model x", 2, &["x"],
     "sanderling namenode --dir n2 --preemption-model bathtub:n1-highcpu-16, or ", Serves),
    ("datanode --disk 1GiB", 2, &["--disk-dir"],
     "sanderling datanode --disk 1GiB --disk-dir disk", Serves),
    ("datanode --dram 16MiB --disk 1MiB --disk-dir tree", 1,
     &["\"tree\" holds \"x\"", "no datanode wrote"], "--disk-dir DIR", Serves),
    ("datanode --dram 1", 1, &["has 1 B", "at least 4.00 KiB"],
     "sanderling datanode --dram 1GiB", Serves),
    ("datanode --memory-max 1MiB", 2, &["--memory-max is 1.00 MiB"],
     "sanderling datanode --memory-max", Serves),
    ("datanode --notice-source ibm", 2, &["aws, gcp, azure"],
     "sanderling datanode --notice-source aws, or ", Serves),
    ("datanode --dram 16MiB --listen 0.0.0.0:0", 1, &["would not be authenticated"],
     "sanderling datanode --dram 16MiB --listen 127.0.0.1:0 --http 127.0.0.1:0", Serves),
    ("datanode --dram 16MiB --listen 0.0.0.0:0 --allow-unauthenticated", 1,
     &["stands for every address"], "--allow-unauthenticated --advertise $(uname -n)", Serves),
];

/// A mistake at a cluster whose datanode has a disk.
#[rustfmt::skip]
const IN_USE: Mistake =
    ("datanode --dram 16MiB --disk 1MiB --disk-dir $LOCAL/disk/datanode-0", 1,
     &["disk/datanode-0", "in use by another datanode"], "--disk-dir DIR", Serves);

/// Mistakes whose next commands empty nodes, the store and the cluster, in this order.
#[rustfmt::skip]
const ENDINGS: &[Mistake] = &[
    ("node notice datanode-0 --deadline 1ms", 2, &["would not leave before the deadline"],
     "--deadline 1ms --dry-run, or sanderling node notice datanode-0 --deadline 1ms --yes", Works),
    ("node notice datanode-1", 2, &["--deadline"],
     "sanderling node notice datanode-1 --deadline 30s", Works),
    ("node notice datanode-2 --deadline 30d", 1, &["30d", "the limit is 7d"],
     "sanderling node notice datanode-2 --deadline 7d", Works),
    ("node notice datanode-3 --deadline -5s", 1, &["passed 5.00 s ago"],
     "sanderling node notice datanode-3 --deadline 30s", Works),
    ("node notice datanode-4 --deadline soon", 2, &["soon"],
     "sanderling node notice datanode-4 --deadline 30s", Works),
    ("local add --name datanode-5", 1, &["datanode-5 already"],
     "sanderling local restart datanode-5, or sanderling local status", Works),
    ("local add --dram lots", 2, &["lots"], "sanderling local add --dram 1GiB", Works),
    ("local status --dir none90", 3, &["no cluster was started"],
     "sanderling local start --dir none90", Works),
    ("local stop --dir none91", 3, &["no cluster was started"],
     "sanderling local start --dir none91", Works),
    ("local add --dir none92", 3, &["no cluster was started"],
     "sanderling local start --dir none92", Works),
    ("fs rm -r '/*'", 2, &["everything"], "--dry-run, or sanderling fs rm -r '/*' --yes", Works),
    ("fs rm -r /", 2, &["everything"], "--dry-run, or sanderling fs rm -r / --yes", Works),
    ("local start", 1, &["runs in", "already"],
     "sanderling local status, or sanderling local stop", Works),
];

/// Mistakes at a cluster that requires tokens and TLS.
#[rustfmt::skip]
const SECURED: &[Mistake] = &[
    ("fs ls /", 1, &["TLS"], "--tls-ca", Works),
    ("--tls-ca $CA fs ls /", 1, &["not authenticated"], "--token-file", Works),
    ("--token-file $TOKEN fs ls /", 1, &["TLS"], "--tls-ca", Works),
    ("--tls-ca $CA --token-file other fs ls /", 1, &["not authenticated"], "--token-file", Works),
    ("doctor", 1, &["checks fails"], "--tls-ca", Works),
];

/// Mistakes in the directory of a cluster whose processes have all ended. Each has a cluster of its
/// own; when the second command is run, the first has brought it back.
#[rustfmt::skip]
const ENDED: &[Mistake] = &[
    ("local start --quiet", 2, &["was not stopped", "would delete its catalog of "],
     "sanderling local restart namenode, or sanderling local start --quiet --yes",
     Each(&[Works, Ends(1)])),
    ("tour", 2, &["was not stopped", "would delete its catalog of "],
     "sanderling local restart namenode, or sanderling local stop", Works),
];

/// A cluster of `local start`, and a directory of files for the commands.
struct World {
    place: TempDir,
    variables: Vec<(&'static str, String)>,
    /// How many names were made up so far.
    names: Cell<usize>,
}

impl World {
    fn start(flags: &[&str]) -> Self {
        // Commands show it as the system does.
        let at = std::env::temp_dir().canonicalize().expect("there is one");
        let place = TempDir::new_in(at).expect("a directory");
        let local = place.path().join("local");
        let mut command = sanderling();
        command.args(["local", "start", "--json", "--port", "0", "--dram", "24MiB"]).args(flags);
        let started = run(command.arg("--dir").arg(&local));
        assert_eq!(started.code, 0, "{started}");
        let started: Value = serde_json::from_str(&started.stdout).expect("JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let programs = place.path().join("programs");
        std::fs::create_dir(&programs).expect("made");
        let program = programs.join("sanderling");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sanderling"), program).expect("made");
        let path = std::env::var("PATH").unwrap_or_default();
        let variables = vec![
            ("PATH", format!("{}:{path}", programs.display())),
            ("LOCAL", local.display().to_string()),
            ("SANDERLING_LOCAL_DIR", local.display().to_string()),
            ("SANDERLING_CONFIG_HOME", place.path().join("config").display().to_string()),
            ("SANDERLING_NAMENODE", text(&started["namenode"])),
            ("HTTP", text(&started["http_address"])),
            ("DATANODE", text(&started["processes"][1]["address"])),
            ("CA", text(&started["keys"]["tls_ca"])),
            ("TOKEN", text(&started["keys"]["token_file"])),
        ];
        let world = Self { place, variables, names: Cell::new(0) };
        let files = world.files();
        std::fs::create_dir_all(files.join("tree")).expect("made");
        for (name, bytes) in [("f3", 3_000_000), ("f4", 4), ("tree/x", 9), ("big", 60_000_000)] {
            std::fs::write(files.join(name), bytes_of(1, bytes)).expect("written");
        }
        world
    }

    fn files(&self) -> PathBuf {
        self.place.path().join("files")
    }

    fn variable(&self, name: &str) -> &str {
        let found = self.variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.as_str()).expect("it is set")
    }

    /// Returns a name that no file has.
    fn name(&self) -> String {
        self.names.set(self.names.get() + 1);
        format!("made-{}", self.names.get())
    }

    /// Returns a shell at this cluster.
    fn sh(&self) -> Command {
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SANDERLING_") {
                command.env_remove(name);
            }
        }
        let variables = self.variables.iter().map(|(name, value)| (*name, value.as_str()));
        command.envs(variables).current_dir(self.files());
        command
    }

    /// Runs a line as a shell does.
    fn shell(&self, line: &str) -> Ran {
        let ran = run(self.sh().args(["-c", line]));
        if std::env::var_os("SHOW").is_some() {
            eprintln!("$ {line}\n{ran}");
        }
        ran
    }

    /// Kills all processes of the cluster, as the crash of a machine does.
    fn crash(&self) {
        let status = || -> Value {
            let ran = self.shell("sanderling local status --json");
            serde_json::from_str(&ran.stdout).expect("JSON")
        };
        for process in status()["processes"].as_array().expect("a list") {
            let pid = process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        }
        cluster::until("all have ended", cluster::SOON, || {
            let seen = status();
            let mut processes = seen["processes"].as_array().expect("a list").iter();
            processes.all(|process| process["is_running"] == false).then_some(())
        });
    }

    #[track_caller]
    fn prepare(&self, lines: &[&str]) {
        for line in lines {
            let ran = self.shell(line);
            assert_eq!(ran.code, 0, "{line}: {ran}");
        }
    }

    /// Makes a mistake; returns what is wrong with how it is answered.
    fn problem(&self, (line, code, cause, next, then): Mistake) -> Option<String> {
        let ran = self.shell(&format!("sanderling {line}"));
        if ran.code != code {
            return Some(format!("ended with {}, not {code}\n{ran}", ran.code));
        }
        let missing: Vec<_> = cause.iter().filter(|word| !ran.stderr.contains(**word)).collect();
        if !missing.is_empty() {
            return Some(format!("lacks {missing:?}\n{ran}"));
        }
        for word in ["uncategorized", "Millis(", "1 objects", "1 blocks", "os error 2)\n  tried"] {
            if ran.stderr.contains(word) {
                return Some(format!("mentions {word:?}\n{ran}"));
            }
        }
        let shown = ran.stderr.lines().find_map(|line| line.strip_prefix("  next:  "));
        let Some(shown) = shown else { return Some(format!("has no next command\n{ran}")) };
        if !shown.contains(next) {
            return Some(format!("lacks the next command {next:?}\n{ran}"));
        }
        let has_tried = ran.stderr.lines().any(|line| line.starts_with("  tried: "));
        if code != WRONG_COMMAND_LINE && !has_tried {
            return Some(format!("does not show what was tried\n{ran}"));
        }
        self.unworkable(shown, then).map(|problem| format!("{problem}\n{ran}"))
    }

    /// Runs every command of a `next:` line; returns what one of them does not do.
    fn unworkable(&self, shown: &str, then: Next) -> Option<String> {
        let begins = |text: &str| PROGRAMS.contains(&text.split(' ').next().unwrap_or_default());
        let (commands, prose): (Vec<&str>, Vec<&str>) =
            shown.split(", or ").partition(|it| begins(it));
        if let Some(other) =
            prose.iter().find(|it| !PROSE.iter().any(|begin| it.starts_with(begin)))
        {
            return Some(format!("has {other:?}, which is neither a command nor a known text"));
        }
        let wanted = match then {
            Unrun(_) if commands.is_empty() => return None,
            Unrun(reason) => return Some(format!("has a command, and is not run: {reason}")),
            Each(each) => each.to_vec(),
            all => vec![all; commands.len()],
        };
        if commands.is_empty() || commands.len() != wanted.len() {
            return Some(format!("has {} commands", commands.len()));
        }
        commands.iter().zip(wanted).find_map(|(command, then)| self.broken(command, then))
    }

    /// Runs one command; returns its answer where it does not do what it has to.
    fn broken(&self, command: &str, then: Next) -> Option<String> {
        let command = self.filled(command);
        let code = match then {
            Serves => {
                self.serve(&command);
                return None;
            }
            Ends(code) => code,
            _ => 0,
        };
        let after = self.shell(&command);
        if command.starts_with(SMALL) {
            let stop = command.replace(SMALL, "sanderling local stop").replace(" --yes", "");
            let stop = self.shell(&stop);
            assert_eq!(stop.code, 0, "{command}: {stop}");
        }
        (after.code != code).then(|| format!("its next command {command:?} fails: {after}"))
    }

    /// Fills in the words that stand for one of the reader's.
    fn filled(&self, command: &str) -> String {
        let name = self.name();
        command
            .replace("--secret-file FILE", "--secret-file secret")
            .replace("--out FILE", &format!("--out {name}"))
            .replace("-dir DIR", &format!("-dir {name}"))
            .replace("--http ADDRESS", "--http $HTTP")
            .replace("--dram 1GiB", "--dram 16MiB")
            .replace("sanderling local start", SMALL)
    }

    /// Starts a server as a shell does, at free ports, waits until it serves, and ends it.
    fn serve(&self, command: &str) {
        let line = format!("exec {command} \"$@\"");
        let mut words = vec!["-c", &line, "sh"];
        // Other tests need the memory.
        if command.starts_with("sanderling datanode") && !command.contains("--dram") {
            words.extend(["--dram", "16MiB"]);
        }
        for flag in ["--listen", "--http"] {
            if !command.contains(flag) {
                words.extend([flag, "127.0.0.1:0"]);
            }
        }
        drop(Starting::by(self.sh(), self.place.path(), &self.name(), &words).serves());
    }

    /// Checks that a failed command shows what was tried.
    #[track_caller]
    fn shows(&self, line: &str, tried: &str) {
        let ran = self.shell(&format!("sanderling {line}"));
        let shown = ran.stderr.lines().find_map(|line| line.strip_prefix("  tried: "));
        assert!(ran.code != 0 && shown == Some(tried), "{line}: {tried:?}: {ran}");
    }

    fn check(&self, mistakes: &[Mistake]) {
        let wrong: Vec<String> = mistakes
            .iter()
            .filter_map(|mistake| Some(format!("{:?} {}", mistake.0, self.problem(*mistake)?)))
            .collect();
        let (count, all) = (wrong.len(), mistakes.len());
        assert!(wrong.is_empty(), "{count} of {all} mistakes:\n{}", wrong.join("\n"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.shell("sanderling local stop");
    }
}

#[test]
fn mistakes_at_a_cluster_get_a_cause_and_a_next_command_that_works() {
    let world = World::start(&["--datanodes", "3"]);
    world.prepare(&[
        "sanderling fs put f3 /a && sanderling fs put f4 '/['",
        "sanderling fs put f4 '/run[1' && sanderling fs put f4 /run1",
        "sanderling fs mkdir /d /d24",
        "for at in /d/x /d/y /d24/x /b22 /c22; do sanderling fs put f4 $at; done",
        "sanderling job new /j81 --quota 1MiB --lease 1h",
        "echo long-enough-to-be-a-secret-of-a-cluster > open; cp open secret",
        "chmod 644 open; chmod 600 secret",
        "sanderling context add local --namenode $SANDERLING_NAMENODE",
        "sanderling namenode backup --to backup --http $HTTP",
    ]);
    world.check(&[OBJECTS, CLUSTER, PROCESSES].concat());
    // What was removed for the wrong pattern is the object of that name alone.
    world.prepare(&["sanderling fs stat /run1"]);
}

#[test]
fn failed_command_shows_the_cluster_and_the_file_that_were_tried() {
    let world = World::start(&["--datanodes", "1"]);
    let address = world.variable("SANDERLING_NAMENODE");
    let request = format!("a request to the cluster at {address}, from ");
    world.shows("fs cat /none", &format!("{request}SANDERLING_NAMENODE"));
    world.shows(&format!("--namenode {address} fs cat /none"), &format!("{request}--namenode"));
    world.prepare(&[&format!("sanderling context add prod --namenode {address}")]);
    world.shows("--context prod fs cat /none", &format!("{request}context prod"));
    world.shows("--namenode 127.0.0.1:1 fs ls /", "127.0.0.1:1, from --namenode");
    let file = |name: &str| world.files().join(name).display().to_string();
    world.shows("fs put none /x", &file("none"));
    world.shows("--token-file none fs ls /", &file("none"));
    world.shows("--tls-ca tree/none fs ls /", &file("tree/none"));
}

#[test]
fn next_commands_that_start_a_server_serve() {
    let world = World::start(&["--datanodes", "1"]);
    world.check(SERVERS);
    let foreign = std::fs::read(world.files().join("tree/x")).expect("it is left alone");
    assert!(foreign == bytes_of(1, 9), "a file that no datanode wrote has other bytes");
}

#[test]
fn second_datanode_on_a_disk_directory_is_refused_and_the_first_keeps_its_blocks() {
    let world = World::start(&["--datanodes", "1", "--disk", "16MiB"]);
    world.prepare(&["sanderling fs put f3 /a --class disk"]);
    world.check(&[IN_USE]);
    world.prepare(&["sanderling fs get /a back && cmp f3 back"]);
}

#[test]
fn next_commands_that_empty_nodes_and_the_cluster_work() {
    let world = World::start(&["--datanodes", "7"]);
    // So many that each node has some, and that they fit on the two that remain.
    world.prepare(&[
        "mkdir many; for at in $(seq 80); do head -c 150000 f3 > many/$at; done",
        "sanderling fs put -r many /many",
    ]);
    world.check(ENDINGS);
}

#[test]
fn next_commands_in_the_directory_of_a_cluster_that_has_ended_work() {
    for mistake in ENDED {
        let world = World::start(&["--datanodes", "1"]);
        world.crash();
        world.check(&[*mistake]);
    }
}

#[test]
fn mistakes_at_a_secured_cluster_get_a_next_command_that_works() {
    let world = World::start(&["--datanodes", "1", "--secure"]);
    world.prepare(&["echo no.token > other; chmod 600 other"]);
    world.check(SECURED);
}

#[test]
fn list_of_mistakes_is_long_and_has_each_once() {
    let lists = [OBJECTS, CLUSTER, PROCESSES, SERVERS, ENDINGS, ENDED, SECURED];
    let all: Vec<Mistake> = lists.concat();
    let mut each: Vec<&str> = all.iter().map(|it| it.0).collect();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), all.len());
    assert!(all.len() >= 140, "{}", all.len());
    let unrun = all.iter().filter(|it| matches!(it.4, Unrun(_))).count();
    assert!(unrun <= 3, "{unrun} next lines have no command");
}

#[test]
fn one_process_of_a_local_cluster_is_started_anew_and_the_others_keep_their_data() {
    let world = World::start(&["--datanodes", "2"]);
    world.prepare(&["sanderling fs put f3 /a", "sanderling fs put f4 /b"]);
    world.prepare(&["sanderling local restart namenode", "sanderling local status"]);
    world.prepare(&["sanderling fs get /a back && cmp f3 back"]);
    // Its blocks move to the other datanode before it ends.
    world.prepare(&["sanderling local restart datanode-0", "sanderling local status"]);
    world.prepare(&["sanderling fs get -f /a back && cmp f3 back", "sanderling fsck"]);
    world.prepare(&["sanderling local add --dram 32MiB && sanderling local status"]);
    let status = world.shell("sanderling local status --json");
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(status["processes"][3]["name"], "datanode-2", "{status}");
    assert_eq!(status["processes"][3]["shape"]["dram_bytes"], 32 << 20, "{status}");
    // One that is down: its status names the command that starts it again.
    let pid = status["processes"][3]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    let down = ("local status", 4, &["1 of 4 processes is down"][..], "datanode-2", Works);
    cluster::until("it is down", cluster::SOON, || {
        (world.shell("sanderling local status").code == 4).then_some(())
    });
    assert_eq!(world.problem(down), None);
    world.prepare(&["sanderling local status"]);
}

#[test]
fn objects_are_copied_in_the_store_and_patterns_are_expanded_there() {
    let world = World::start(&["--datanodes", "2"]);
    world.prepare(&[
        "sanderling fs put -p f3 /in/a.bin --attribute by=hand",
        "sanderling fs put f4 /in/b.txt && sanderling fs put f4 /in/c.txt",
        "sanderling fs cp /in/a.bin /copy && sanderling fs get /copy back && cmp f3 back",
        "test \"$(sanderling fs attr /copy)\" = by=hand",
        "sanderling fs cp -r /in /out && test $(sanderling fs ls /out/ | wc -l) = 3",
        "sanderling fs mkdir /texts && sanderling fs cp '/in/*.txt' /texts/",
        "test \"$(sanderling fs ls /texts)\" = \"$(printf 'b.txt\\nc.txt')\"",
        "test \"$(sanderling fs cat '/texts/*' | wc -c)\" = 8",
        "mkdir here && sanderling fs get '/in/?.txt' here && cmp here/b.txt f4",
        "sanderling fs mv '/texts/*.txt' /out/ -f && test -z \"$(sanderling fs ls /texts)\"",
        "sanderling fs rm '/out/*.txt' && test \"$(sanderling fs ls /out)\" = a.bin",
        "sanderling fs ls -lh /out/ | grep 'a.bin' | grep MiB",
        "sanderling fs ls -l --bytes /out | grep 3000000",
        "sanderling fs df -h && sanderling fs du -h '/in*'",
        "sanderling help fs cp | grep recursive && sanderling version | grep sanderling",
    ]);
}
