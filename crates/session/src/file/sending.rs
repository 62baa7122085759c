//! Sending a file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use bytes::Bytes;
use ontempo_transport::{Closed, live};
use ring::digest::{Context, SHA256};

use super::message::{
    DATA_HEADER, FileContent, MAX_DATA, MAX_LENGTH, Offer, Reply, data_header, write,
};
use crate::connection::Session;
use crate::error::Error;
use crate::sender::{Ended, STEP, Sender, SenderEvent, SenderHandler};

/// Bytes read at a time to verify what the receiver has.
const PIECE: usize = 1 << 20;

/// A regular file to send.
#[derive(Debug)]
pub struct SourceFile {
    pub(crate) file: File,
    pub(crate) name: String,
    pub(crate) offer: Offer,
}

fn modified(file: &File) -> io::Result<(u64, u64)> {
    let about = file.metadata()?;
    let since = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let modified = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    Ok((about.len(), modified))
}

impl SourceFile {
    /// A file at `path`; `None` if it is no regular one, or empty, as those of `/proc` seem to be.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(file: &File, path: &Path) -> io::Result<Option<Self>> {
        let (length, modified) = modified(file)?;
        if !file.metadata()?.is_file() || length == 0 || length > MAX_LENGTH {
            return Ok(None);
        }
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let offer = Offer { length, modified, name: Offer::named(name) };
        Ok(Some(Self { file: file.try_clone()?, name: path.display().to_string(), offer }))
    }

    /// # Errors
    /// A sentence if it is no longer what was offered.
    fn check(&self) -> Result<(), String> {
        let Offer { length, modified: offered, .. } = self.offer;
        match modified(&self.file) {
            Ok(found) if found == (length, offered) => Ok(()),
            Ok((found, _)) => Err(format!(
                "{} was changed while it was sent: it had {length} bytes and has {found}; send it \
                 again",
                self.name
            )),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    fn unreadable(&self, error: &io::Error) -> String {
        format!("cannot read {}: {error}", self.name)
    }

    /// Reads at `offset` until `buffer` is full.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), String> {
        match self.file.read_exact_at(buffer, offset) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let Offer { length, .. } = self.offer;
                let now = self.file.metadata().map_or(0, |about| about.len());
                Err(format!(
                    "{} became shorter while it was sent: {now} of {length} bytes",
                    self.name
                ))
            }
            Err(error) => Err(self.unreadable(&error)),
        }
    }
}

/// Why no more of a file is sent over a connection.
enum Stopped {
    Lost(Closed),
    /// `stop` was set.
    Interrupted,
    /// The file is not what it was: a sentence.
    Changed(String),
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<H: SenderHandler> Sender<H> {
    /// Offers the file and sends what the receiver lacks. `None`: the receiver wants a stream.
    pub(crate) fn send_file_over(
        &mut self,
        file: &SourceFile,
        session: &mut Session,
    ) -> Result<Option<Ended>, Error> {
        let (sentence, is_changed) = match self.send_rest(file, session) {
            Ok(true) => return self.finish(session).map(Some),
            Ok(false) => return Ok(None),
            Err(Stopped::Lost(closed)) => return Ok(Some(Ended::Lost(closed))),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Changed(sentence)) => (sentence, true),
            Err(Stopped::Interrupted) => {
                ("the sender was interrupted before the end of its file".to_owned(), false)
            }
        };
        let failed = FileContent::Failed { is_changed, sentence: sentence.clone() };
        let told = self.send_message(session, &write(&failed), true);
        session.finish();
        // The receiver closes when it has read it.
        let since = Instant::now();
        while told.is_ok() && since.elapsed() < crate::sender::STOP_TIMEOUT {
            if session.connection.closed(STEP).is_some() {
                break;
            }
        }
        if is_changed { Err(Error::Source(sentence)) } else { Ok(Some(Ended::Done)) }
    }

    /// Sends what the receiver lacks, and the digest; false if it wants a stream.
    fn send_rest(&mut self, file: &SourceFile, session: &mut Session) -> Result<bool, Stopped> {
        let Offer { length, .. } = file.offer;
        let (from, digest) = match self.await_reply(session)? {
            Reply::Stream if self.totals.reconnected == 0 => return Ok(false),
            Reply::Stream => {
                let sentence = "the receiver was started anew, and no longer writes to a file";
                return Err(Error::Incomplete(sentence.to_owned()).into());
            }
            Reply::File { from, .. } if from > length => {
                return Err(Error::Incomplete(format!(
                    "the receiver says that it has {from} bytes of a file of {length}: it is not \
                     ontempo receive"
                ))
                .into());
            }
            Reply::File { from, digest } => (from, digest),
        };
        file.check().map_err(Stopped::Changed)?;
        let mut hasher = self.hash(file, from)?;
        let is_kept = digest == hasher.clone().finish().into();
        let mut offset = if is_kept { from } else { 0 };
        if !is_kept {
            hasher = Context::new(&SHA256);
        }
        self.emit(SenderEvent::File { from: offset, discarded: from - offset, length })?;
        self.send_message(session, &write(&FileContent::Begin { offset, is_kept }), false)?;
        while offset < length {
            let size = usize::try_from(length - offset).unwrap_or(MAX_DATA).min(MAX_DATA);
            let mut unit = vec![0; DATA_HEADER + size];
            unit[..DATA_HEADER].copy_from_slice(&data_header(offset));
            file.read(&mut unit[DATA_HEADER..], offset).map_err(Stopped::Changed)?;
            hasher.update(&unit[DATA_HEADER..]);
            self.send_message(session, &unit.into(), false)?;
            offset += size as u64;
        }
        file.check().map_err(Stopped::Changed)?;
        let end = FileContent::End { length, digest: hasher.finish().into() };
        self.send_message(session, &write(&end), false)?;
        Ok(true)
    }

    /// The digest of the first bytes.
    fn hash(&mut self, file: &SourceFile, count: u64) -> Result<Context, Stopped> {
        let mut hasher = Context::new(&SHA256);
        let (mut piece, mut at) = (vec![0; PIECE], 0);
        while at < count {
            if self.check_stop() {
                return Err(Stopped::Interrupted);
            }
            let size = usize::try_from(count - at).unwrap_or(PIECE).min(PIECE);
            file.read(&mut piece[..size], at).map_err(Stopped::Changed)?;
            hasher.update(&piece[..size]);
            at += size as u64;
        }
        Ok(hasher)
    }

    /// Waits for the receiver's answer. It may first read what it has of the file, which may be much.
    fn await_reply(&mut self, session: &mut Session) -> Result<Reply, Stopped> {
        loop {
            if let Some(reply) = session.reply(STEP) {
                return Ok(reply);
            }
            self.poll(session)?;
            if let Some(closed) = session.connection.is_closed() {
                return Err(Stopped::Lost(closed));
            }
            if self.is_stopped() {
                return Err(Stopped::Interrupted);
            }
        }
    }

    /// Queues a message as soon as there is room; with `always` also after `stop`.
    fn send_message(
        &mut self,
        session: &mut Session,
        data: &Bytes,
        always: bool,
    ) -> Result<(), Stopped> {
        loop {
            if self.is_stopped() && (!always || self.stop_timed_out()) {
                return Err(Stopped::Interrupted);
            }
            match session.send_data(data.clone(), STEP) {
                Ok(true) => {
                    self.poll(session)?;
                    return Ok(());
                }
                Ok(false) => self.poll(session)?,
                Err(live::Error::Closed(closed)) => return Err(Stopped::Lost(closed)),
                Err(error) => return Err(Stopped::Failed(error.into())),
            }
        }
    }
}
