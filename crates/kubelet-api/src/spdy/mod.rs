//! SPDY/3.1 as Kubernetes speaks it: frames, header blocks, and the server's side of a connection.
//!
//! Only what a kube-apiserver and kubectl use is here. There is no flow control: peers ignore the windows of the standard and never
//! open one, so keeping to them would stop every transfer at 64 KiB. Back-pressure is TCP's, shared by the streams of a connection.

mod connection;
mod frame;
mod headers;
mod outgoing;

pub(crate) use self::connection::{Broken, Connection, Incoming, Rules, idle};
pub use self::frame::{Decoder, Encoder, Frame, FrameError, MAX_PIECE, rst};
pub use self::headers::{HeaderError, Headers};
