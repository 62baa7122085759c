//! Writing to a file or a pipe whose reader may be stuck.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration as Wall;

/// Interval at which the stop flag is read.
const STEP: Wall = Wall::from_millis(50);

/// For how many of these a reader that takes nothing is waited for after the stop flag: 1 s. Where the
/// machine is busy, they take longer for both.
const PATIENCE: u32 = 20;

/// Maximum bytes written at a time. A write to a pipe returns only when it has taken all of them, and
/// what it has taken of a long one cannot be told from nothing.
const MAX_PIECE: usize = 16 * 1024;

/// A writer whose calls end though the other end of its pipe takes nothing: 1 s after `stop` is set.
/// Until then they block, as those of the pipe. A thread writes, which ends with the program.
pub struct StoppableWriter {
    jobs: SyncSender<Vec<u8>>,
    done: Receiver<(Vec<u8>, io::Result<()>)>,
    /// The buffer of the job before; `None` while the thread writes.
    spare: Option<Vec<u8>>,
    accepted: u64,
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    is_given_up: bool,
}

/// Writes all and counts.
fn write(to: &mut dyn Write, mut rest: &[u8], written: &AtomicU64) -> io::Result<()> {
    while !rest.is_empty() {
        match to.write(&rest[..rest.len().min(MAX_PIECE)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => {
                written.fetch_add(more as u64, Relaxed);
                rest = &rest[more..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    to.flush()
}

impl StoppableWriter {
    /// Writes to `to` until it is dropped, or `stop` is set.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn new(mut to: Box<dyn Write + Send>, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (jobs, work) = sync_channel::<Vec<u8>>(1);
        let (finished, done) = sync_channel(1);
        let written = Arc::<AtomicU64>::default();
        let count = Arc::clone(&written);
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            for bytes in work {
                let result = write(to.as_mut(), &bytes, &count);
                if finished.send((bytes, result)).is_err() {
                    return;
                }
            }
        })?;
        let spare = Some(Vec::new());
        Ok(Self { jobs, done, spare, accepted: 0, written, stop, is_given_up: false })
    }

    /// Bytes that calls have accepted, and that are not written.
    pub fn unwritten(&self) -> u64 {
        self.accepted.saturating_sub(self.written.load(Relaxed))
    }

    /// True if a call has ended because of the stop flag.
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Waits until the thread has nothing to write; its buffer.
    fn idle(&mut self) -> io::Result<Vec<u8>> {
        if let Some(spare) = self.spare.take() {
            return Ok(spare);
        }
        let (mut last, mut silent) = (self.written.load(Relaxed), 0);
        while !self.is_given_up {
            match self.done.recv_timeout(STEP) {
                Ok((spare, Ok(()))) => return Ok(spare),
                Ok((spare, Err(error))) => {
                    self.spare = Some(spare);
                    return Err(error);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ErrorKind::BrokenPipe.into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let written = self.written.load(Relaxed);
            let is_waited_for = written != last || !self.stop.load(Relaxed);
            (last, silent) = (written, if is_waited_for { 0 } else { silent + 1 });
            self.is_given_up = silent >= PATIENCE;
        }
        Err(ErrorKind::TimedOut.into())
    }
}

impl Write for StoppableWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut buffer = self.idle()?;
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.jobs.send(buffer).map_err(|_| ErrorKind::BrokenPipe)?;
        self.accepted += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.spare = Some(self.idle()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, pipe};
    use std::time::Instant;

    use super::*;

    fn writer() -> (StoppableWriter, PipeReader, Arc<AtomicBool>) {
        let (reader, to): (_, PipeWriter) = pipe().expect("a pipe");
        let stop = Arc::<AtomicBool>::default();
        let writer = StoppableWriter::new(Box::new(to), Arc::clone(&stop)).expect("a thread");
        (writer, reader, stop)
    }

    #[test]
    fn a_stuck_reader_is_waited_for_until_the_stop_flag_and_a_second_longer() {
        let (mut writer, reader, stop) = writer();
        let setter = Arc::clone(&stop);
        thread::spawn(move || {
            thread::sleep(Wall::from_millis(300));
            setter.store(true, Relaxed);
        });
        let begun = Instant::now();
        let error =
            writer.write_all(&[7; 200_000]).and_then(|()| writer.flush()).expect_err("stuck");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let took = begun.elapsed();
        assert!(Wall::from_millis(1_200) < took && took < Wall::from_secs(10), "{took:?}");
        // A pipe holds 64 KiB.
        assert_eq!(writer.unwritten(), 200_000 - (64 << 10));
        assert!(writer.flush().is_err() && begun.elapsed() < took + Wall::from_secs(1));
        drop(reader);
    }

    #[test]
    fn a_slow_reader_gets_all_though_the_flag_is_set() {
        let (mut writer, mut reader, stop) = writer();
        stop.store(true, Relaxed);
        let reading = thread::spawn(move || {
            let (mut all, mut room) = (0, [0; 30_000]);
            loop {
                thread::sleep(Wall::from_millis(100));
                match reader.read(&mut room).expect("read") {
                    0 => return all,
                    more => all += more,
                }
            }
        });
        writer.write_all(&[7; 500_000]).and_then(|()| writer.flush()).expect("written");
        assert_eq!(writer.unwritten(), 0);
        drop(writer);
        assert_eq!(reading.join().expect("read"), 500_000);
    }

    #[test]
    fn an_error_is_that_of_the_next_call() {
        let (mut writer, reader, _) = writer();
        drop(reader);
        assert_eq!(writer.write(b"lost").expect("accepted"), 4);
        assert_eq!(writer.flush().expect_err("closed").kind(), ErrorKind::BrokenPipe);
    }
}
