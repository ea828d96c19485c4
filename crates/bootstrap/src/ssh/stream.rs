//! A command whose output is wanted as it comes.

use russh::ChannelMsg;

use super::exec::{Stop, name};
use super::{During, Error, Exit, Session};

/// Number of the stream that carries standard error.
const STDERR: u32 = 1;

/// Which of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl Session {
    /// Runs a command without standard input and hands on what it says. It has no deadline: whoever waits may drop the future,
    /// which stops the command as [`Session::run`] does.
    pub async fn stream(&self, command: &str, mut sink: impl FnMut(Stream, &[u8]) + Send) -> Result<Exit, Error> {
        let address = self.address;
        let channel = self.handle.channel_open_session().await.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(_) => Error::TooManyCommands { address },
            _ => self.dropped(During::Command),
        })?;
        let (mut reader, writer) = channel.split();
        let lost = |_: russh::Error| self.dropped(During::Command);
        writer.exec(true, command).await.map_err(lost)?;
        writer.eof().await.map_err(lost)?;
        let mut stop = Stop(Some(writer));
        let mut status = None;
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => sink(Stream::Output, &data),
                ChannelMsg::ExtendedData { data, ext: STDERR } => sink(Stream::Error, &data),
                ChannelMsg::ExitStatus { exit_status } => status = Some(Exit::Code(exit_status)),
                ChannelMsg::ExitSignal { signal_name, .. } => status = Some(Exit::Signal(name(&signal_name))),
                ChannelMsg::Failure => return Err(Error::CommandRefused { address }),
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        match status {
            Some(status) => {
                stop.0 = None;
                Ok(status)
            }
            None if self.is_closed() => Err(self.dropped(During::Command)),
            None => Err(Error::NoStatus { address }),
        }
    }
}
