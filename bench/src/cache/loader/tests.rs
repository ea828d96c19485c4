use super::*;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

/// Answers every request on one connection with what `answer` makes of its first line and its body length.
fn server(answer: fn(&str, usize) -> Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream.unwrap());
                loop {
                    let mut first = String::new();
                    if stream.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        stream.read_line(&mut line).unwrap();
                        if let Some(value) = line.strip_prefix("content-length: ") {
                            length = value.trim().parse().unwrap();
                        }
                        if line == "\r\n" {
                            break;
                        }
                    }
                    let mut body = vec![0; length];
                    stream.read_exact(&mut body).unwrap();
                    stream.get_mut().write_all(&answer(&first, length)).unwrap();
                }
            });
        }
    });
    address
}

struct Repeated {
    left: u32,
    body: Option<usize>,
    length: Option<u64>,
}

impl Source for Repeated {
    fn next(&mut self, head: &mut Vec<u8>) -> Option<Ask> {
        self.left = self.left.checked_sub(1)?;
        let length = self.body.unwrap_or(0);
        write!(head, "PUT /x HTTP/1.1\r\ncontent-length: {length}\r\n\r\n").unwrap();
        Some(Ask {
            body: self.body.map(|size| 0..size),
            statuses: &[200],
            length: self.length,
        })
    }
}

fn drive(address: SocketAddr) -> Drive {
    Drive {
        address,
        connections: 3,
        time: None,
    }
}

#[test]
fn large_bodies_go_both_ways_and_are_counted() {
    let address = server(|_, length| {
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", length * 2).into_bytes();
        answer.resize(answer.len() + length * 2, b'x');
        answer
    });
    let size = 3_000_000;
    let mut source = Repeated {
        left: 7,
        body: Some(size),
        length: Some(2 * size as u64),
    };
    let load = run(drive(address), &Bodies::new(size), &mut source).unwrap();
    let load = load.clean("test").unwrap();
    assert_eq!((load.requests, load.bytes), (7, 7 * 3 * size as u64));
    assert_eq!((load.writes.len(), load.reads.len()), (7, 0));
}

#[test]
fn a_wrong_status_or_length_or_end_is_not_counted_as_success() {
    let refuse = server(|_, _| b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let short = server(|_, _| b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab".to_vec());
    let noise = server(|_, _| b"what?\r\n\r\n".to_vec());
    for (address, words) in [
        (refuse, "status 503"),
        (short, "2 bytes instead of 3"),
        (noise, "not HTTP"),
    ] {
        let mut source = Repeated {
            left: 3,
            body: None,
            length: Some(3),
        };
        let load = run(drive(address), &Bodies::new(1), &mut source).unwrap();
        let error = load.clean("test").unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
