//! The `sanderling` command.

fn main() {
    std::process::exit(sanderling_cli::main(std::env::args_os()));
}
