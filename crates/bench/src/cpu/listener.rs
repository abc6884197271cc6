//! Which process of this machine listens at an address.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// Returns the process that listens at `host:port`, if it runs here and may be looked at.
pub(super) fn process_at(address: &str) -> Option<u32> {
    let wanted = address.to_socket_addrs().ok()?.find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    })?;
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = listening_inode(&table, wanted)?;
    owner(&format!("socket:[{inode}]"))
}

/// Finds the socket that listens at an address, in the format of `proc_net_tcp`. One that listens
/// at every address counts for loopback only: any other may be another machine's.
fn listening_inode(table: &str, wanted: SocketAddrV4) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = socket(fields.next()?)?;
        let state = fields.nth(1)?;
        let is_any = local.ip().is_unspecified() && wanted.ip().is_loopback();
        let is_here = local.ip() == wanted.ip() || is_any;
        if state != LISTENS || !is_here || local.port() != wanted.port() {
            return None;
        }
        fields.nth(5)?.parse().ok()
    })
}

/// Reads `0100007F:1DB0`: the address in the machine's order of bytes, the port in the usual one.
fn socket(text: &str) -> Option<SocketAddrV4> {
    let (address, port) = text.split_once(':')?;
    let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
    Some(SocketAddrV4::new(Ipv4Addr::from(address), u16::from_str_radix(port, 16).ok()?))
}

/// Finds the process that has a file open.
fn owner(link: &str) -> Option<u32> {
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let is_it = |path: std::path::PathBuf| path.as_os_str() == link;
        if files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(is_it)) {
            return Some(pid);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_where_it_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(process_at(&address), Some(std::process::id()));
        drop(listener);
        assert_eq!(process_at(&address), None);
    }

    #[test]
    fn listener_at_every_address_is_not_another_machines() {
        let table = "head\n 0: 00000000:1DB0 00000000:0000 0A 0:0 00:0 0 0 0 4711 1\n";
        let at = |text: &str| listening_inode(table, text.parse().unwrap());
        assert_eq!(at("127.0.0.1:7600"), Some(4711));
        assert_eq!(at("10.0.0.7:7600"), None);
        assert_eq!(at("127.0.0.1:7601"), None);
    }
}
