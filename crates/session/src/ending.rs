//! How a stream ends at a receiver.

use std::time::{Duration as Wall, Instant};

use ontempo_transport::live::{Connection, SendFlow};

use crate::error::Error;
use crate::message::Report;
use crate::receiver::{
    Outcome, Receiver, ReceiverEvent, ReceiverHandler, SENDER_TIMEOUT, STEP, Stream,
};
use crate::reporting::{send, with_counts};

/// Time limit for the last report of a receiver that is stopped.
const LAST_REPORT: Wall = Wall::from_millis(500);

impl<H: ReceiverHandler> Receiver<H> {
    /// Writes due datagrams while no sender is connected.
    pub(crate) fn write_due(&mut self) -> Result<(), Error> {
        if let Some(stream) = &mut self.stream {
            stream.sink.work(true)?;
        }
        Ok(())
    }

    /// Ends the stream if its sender has been away for too long.
    pub(crate) fn check_give_up(&mut self) -> Result<(), Error> {
        let Some(limit) = self.options.give_up.filter(|_| self.options.once) else { return Ok(()) };
        let of_stream = self.stream.as_ref().and_then(|stream| stream.lost_at);
        let of_file = self.file.as_ref().and_then(|file| file.lost_at);
        if of_stream.or(of_file).is_none_or(|at| at.elapsed() < limit) {
            return Ok(());
        }
        let missing = match &self.file {
            Some(file) => file.what_is_missing(),
            None => "the end of the stream is missing".to_owned(),
        };
        self.stopped(&[])?;
        let seconds = limit.as_secs_f64();
        let sentence = format!("the sender was lost and did not connect again within {seconds} s");
        Err(Error::Incomplete(format!("{sentence}: {missing}")))
    }

    /// Writes what has been received of the stream or the file, reports it to its sender, and closes.
    pub(crate) fn stopped(&mut self, over: &[(&Connection, &SendFlow)]) -> Result<Outcome, Error> {
        let report = if let Some(file) = self.file.take() {
            self.emit(ReceiverEvent::Missed(file.what_is_missing()))?;
            file.report()
        } else if let Some(stream) = self.stream.take() {
            with_counts(stream.before, stream.sink.finish()?)
        } else {
            return Ok(Outcome::Stopped { midstream: false });
        };
        let since = Instant::now();
        for (_, reports) in over {
            send(reports, &report);
            reports.finish();
        }
        for (connection, reports) in over {
            // Without an answer nobody is there who could know it.
            let _ = reports.settled(LAST_REPORT.saturating_sub(since.elapsed()));
            connection.close("the receiver was stopped");
        }
        self.emit(ReceiverEvent::StreamEnded(&report))?;
        Ok(Outcome::Stopped { midstream: true })
    }

    /// Waits for the sender to close.
    pub(crate) fn await_close(&self, connection: &Connection) {
        let end = Instant::now() + SENDER_TIMEOUT;
        while Instant::now() < end && connection.closed(STEP).is_none() && !self.is_stopped() {}
    }

    /// Ends the stream: writes the rest, sends the final report, and waits for the sender to close.
    /// A stream that should be whole and is not is an error.
    pub(crate) fn end(
        &mut self,
        connection: &Connection,
        reports: &[&SendFlow],
    ) -> Result<(), Error> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        let Stream { before, is_reliable, is_cut_short, .. } = stream;
        let counts = stream.sink.finish()?;
        let report = Report { is_final: true, ..with_counts(before, counts) };
        for reports in reports {
            send(reports, &report);
            reports.finish();
        }
        self.await_close(connection);
        self.emit(ReceiverEvent::StreamEnded(&report))?;
        if !self.options.once || !is_reliable {
            return Ok(());
        }
        if is_cut_short || !counts.has_end() {
            return Err(Error::Incomplete(
                "the sender was stopped before the end of its source: the end of the stream is \
                 missing"
                    .to_owned(),
            ));
        }
        match counts.lost() {
            0 => Ok(()),
            lost => {
                let (all, _) = report.datagrams();
                let sentence = format!("{lost} of {all} datagrams are missing or damaged");
                Err(Error::Incomplete(format!("the stream is not whole: {sentence}")))
            }
        }
    }
}
