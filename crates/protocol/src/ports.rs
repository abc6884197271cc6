//! Where a namenode listens unless it is given another address, and where others look for it.

/// The port of a namenode, unless another is configured. Chosen: a registered port (RFC 6335: 1024
/// to 49151), below those that Linux gives to outgoing connections.
pub const NAMENODE_PORT: u16 = 7600;

/// The port of its HTTP, with the web console: the next one, so that commands find it.
pub const NAMENODE_HTTP_PORT: u16 = NAMENODE_PORT + 1;

/// The address of a namenode where none is given.
pub const NAMENODE_ADDRESS: &str = "127.0.0.1:7600";

/// The address of its HTTP.
pub const NAMENODE_HTTP_ADDRESS: &str = "127.0.0.1:7601";

/// The address of its web console.
pub const CONSOLE_URL: &str = "http://127.0.0.1:7601/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_ports() {
        assert_eq!(NAMENODE_ADDRESS, format!("127.0.0.1:{NAMENODE_PORT}"));
        assert_eq!(NAMENODE_HTTP_ADDRESS, format!("127.0.0.1:{NAMENODE_HTTP_PORT}"));
        assert_eq!(CONSOLE_URL, format!("http://{NAMENODE_HTTP_ADDRESS}/"));
    }
}
