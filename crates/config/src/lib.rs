//! Configuration files of the servers, and `sanderling config`, which shows and checks them. A key
//! is a flag's name, and a flag or a variable of the environment comes before the file.
//!
//! The keys and their types are those of the program's command line. The crate that has it hands it
//! over as a [`Program`].

mod command;
mod keys;
mod problem;
mod server_file;
mod values;

pub use self::command::{ConfigCheck, ConfigCommand, ConfigShow, PAGE, after_help, run};
pub use self::keys::{ConfigKey, KeyKind, NOT_IN_FILES, Program, SERVERS, ServerTable, is_common};
pub use self::server_file::ServerCommandLine;
