//! The two ways in for HTTP/1.1: the plain port and the TLS port of one node. What holds for one holds for the other.

use crate::node::{Client, Node, wait_for};
use russet_conformance::http::{Server, Transport};
use russet_conformance::ours::{certificate, certify};

pub(crate) struct Doors {
    pub(crate) node: Node,
    servers: [Server; 2],
    _dir: tempfile::TempDir,
}

impl Doors {
    pub(crate) fn open(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = certify(dir.path()).unwrap();
        let flags = certificate(dir.path());
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(args.iter().copied()).collect();
        let node = Node::start(&flags);
        let server = |address, transport| {
            let mut server = Server::new(&format!("http://{address}")).unwrap();
            server.transport = transport;
            server.trust = vec![authority.clone()];
            server
        };
        Self {
            servers: [
                server(node.address, Transport::Http1),
                server(node.secure.unwrap(), Transport::TlsHttp1),
            ],
            node,
            _dir: dir,
        }
    }

    /// A connection through each.
    pub(crate) fn enter(&self) -> [Client; 2] {
        self.servers
            .each_ref()
            .map(|server| Client(wait_for(server.wire()).unwrap()))
    }
}
