//! `kubectl port-forward`.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;
use tokio::time::timeout;

use crate::stage::{BOTH, PATIENCE, Stage, Via, on_stage};

/// Says everything back, and ends when the caller has ended: only a forward that keeps half-closed connections open passes.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                if socket.read_to_end(&mut all).await.is_ok() {
                    let _ = socket.write_all(&all).await;
                    let _ = socket.shutdown().await;
                }
            });
        }
    });
    port
}

async fn forward(stage: &Stage, via: Via, pod: &str, port: u16) -> (Child, SocketAddr) {
    let mut child = stage.spawn(via, &["port-forward", pod, &format!(":{port}"), "--address=127.0.0.1"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line
        .strip_prefix("Forwarding from ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    // kubectl says a line per connection; unread, they would stop it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, address.parse().unwrap())
}

#[test]
fn many_connections_share_one_forward_and_each_may_end_its_half_first() {
    on_stage(async |stage| {
        stage.backend.add("door", 1);
        stage.announce("door").await;
        let port = echo().await;
        for via in BOTH {
            let (mut child, address) = forward(stage, via, "door", port).await;
            let talk = async |number: u8| {
                let sent: Vec<u8> = (0..400_000_u32).map(|byte| byte.to_le_bytes()[0] ^ number).collect();
                let mut socket = TcpStream::connect(address).await.unwrap();
                socket.write_all(&sent).await.unwrap();
                socket.shutdown().await.unwrap();
                let mut got = Vec::new();
                socket.read_to_end(&mut got).await.unwrap();
                assert!(got == sent, "{via:?} {number}: {} bytes came back", got.len());
            };
            let all = futures::future::join_all((0..16).map(talk));
            timeout(PATIENCE, all).await.expect("all connections are served");
            // And one more, after all others have ended.
            timeout(PATIENCE, talk(200)).await.unwrap();
            child.start_kill().unwrap();
        }
    });
}

#[test]
fn a_port_where_nobody_listens_is_reported() {
    on_stage(async |stage| {
        stage.backend.add("wall", 1);
        stage.announce("wall").await;
        // Bound, so that no other test gets this port, and never listening.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = closed.local_addr().unwrap().port();
        let (mut child, address) = forward(stage, Via::WebSocket, "wall", port).await;
        let mut socket = TcpStream::connect(address).await.unwrap();
        let _ = socket.write_all(b"x").await;
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let wanted = format!("error forwarding port {port} to pod wall");
        loop {
            let line = timeout(PATIENCE, errors.next_line()).await.unwrap().unwrap();
            let line = line.expect("kubectl says what went wrong");
            if line.contains(&wanted) {
                assert!(line.contains("refused"), "{line}");
                break;
            }
        }
    });
}
