//! Receiving a file.

use std::time::Instant;

use ontempo_transport::live::{Connection, ReceiveFlow, SendFlow};
use ontempo_transport::{CloseReason, Delivery};

use super::message::{FileContent, Offer, Reply, read};
use super::part::{Beginning, PartFile};
use crate::error::Error;
use crate::flowing::Flowing;
use crate::message::Report;
use crate::receiver::{Ended, PROGRESS, Receiver, ReceiverEvent, ReceiverHandler, STEP};
use crate::reporting::send;

/// The file that is being received, over one or several connections.
pub(crate) struct Transfer {
    pub(crate) session: u128,
    part: PartFile,
    /// Since when no connection carries it.
    pub(crate) lost_at: Option<Instant>,
    units: u64,
    /// The sender has said where it begins over this connection.
    is_begun: bool,
}

/// What became of a file over a connection.
enum Step {
    More,
    /// All has arrived, and the file has its name: the final report.
    Whole(Report),
    /// The sender breaks the protocol: a sentence.
    Wrong(String),
}

impl Transfer {
    /// The sender's file.
    pub(crate) fn offer(&self) -> Offer {
        self.part.offer()
    }

    /// What is missing of it.
    pub(crate) fn what_is_missing(&self) -> String {
        self.part.what_is_missing()
    }

    pub(crate) fn report(&self) -> Report {
        let (units, bytes) = (self.units, self.part.written());
        Report { units, bytes, whole_datagrams: units, ..Report::default() }
    }
}

fn target(sentence: impl std::fmt::Display) -> Error {
    Error::Target(sentence.to_string())
}

impl<H: ReceiverHandler> Receiver<H> {
    /// Opens the file for a sender's offer, or goes on with it; false if it is no file that this receiver
    /// writes, but a stream, or if another's file is being received.
    pub(crate) fn begin_file(&mut self, session: u128, offer: Offer) -> Result<bool, Error> {
        if let Some(transfer) = &mut self.file {
            if transfer.offer() != offer {
                transfer.part.begin_anew(offer).map_err(target)?;
                transfer.units = 0;
            }
            (transfer.session, transfer.lost_at, transfer.is_begun) = (session, None, false);
            return Ok(true);
        }
        let Some(part) = self.handler().open_file(offer).map_err(Error::Target)? else {
            return Ok(false);
        };
        let (lost_at, units, is_begun) = (None, 0, false);
        self.file = Some(Transfer { session, part, lost_at, units, is_begun });
        Ok(true)
    }

    /// Receives a file over a connection.
    pub(crate) fn receive_file(
        &mut self,
        connection: &Connection,
        flow: &ReceiveFlow,
    ) -> Result<Ended, Error> {
        self.emit(ReceiverEvent::Receiving(connection.remote()))?;
        let reports = match self.flow_of_reports(connection) {
            Ok(reports) => reports,
            Err(error) => return Ok(Ended::Lost(error.to_string())),
        };
        if let Some(Transfer { part, .. }) = &self.file {
            send(&reports, &Reply::File { from: part.written(), digest: part.digest() });
        }
        loop {
            if self.is_stopped() {
                self.stopped(&[(connection, &reports)])?;
                return Ok(Ended::Stopped);
            }
            if let Some((connection, flow)) = self.poll_listener(connection, &reports)? {
                return Ok(Ended::Replaced(connection, flow));
            }
            let step = match flow.receive_within(STEP) {
                None | Some(Ok(Some(Delivery::Dropped(_)))) => Step::More,
                Some(Ok(Some(Delivery::Unit(unit)))) => match read(&unit.data) {
                    Ok(content) => self.take_content(content)?,
                    Err(sentence) => Step::Wrong(sentence),
                },
                Some(Ok(None)) => Step::Wrong("an end of the flow before that of the file".into()),
                Some(Err(error)) => return Ok(Ended::Lost(error.to_string())),
            };
            match step {
                Step::More => {}
                Step::Whole(report) => {
                    send(&reports, &report);
                    reports.finish();
                    self.await_close(connection);
                    self.emit(ReceiverEvent::StreamEnded(&report))?;
                    return Ok(Ended::Complete);
                }
                Step::Wrong(sentence) => {
                    let said = format!("what it was sent is no file: {sentence}");
                    connection.close_with(CloseReason::ProtocolViolation, &said);
                    return Ok(Ended::Lost(format!("it broke the protocol: {sentence}")));
                }
            }
            self.report_file(connection, flow, &reports)?;
        }
    }

    fn take_content(&mut self, content: FileContent) -> Result<Step, Error> {
        let Some(transfer) = &mut self.file else { return Ok(Step::More) };
        let (written, length) = (transfer.part.written(), transfer.part.offer().length);
        match content {
            FileContent::Begin { offset, is_kept } => {
                if transfer.is_begun || offset != if is_kept { written } else { 0 } {
                    return Ok(Step::Wrong(format!("it begins at {offset}, not at {written}")));
                }
                transfer.is_begun = true;
                if !is_kept {
                    transfer.part.begin_anew(transfer.part.offer()).map_err(target)?;
                    transfer.units = 0;
                }
                let from = transfer.part.written();
                let discarded = match transfer.part.beginning() {
                    Beginning::Other(discarded) => discarded,
                    Beginning::New | Beginning::Resumed(_) => 0,
                };
                self.emit(ReceiverEvent::File { from, discarded, length })?;
            }
            FileContent::Data { offset, data } => {
                if !transfer.is_begun || offset != written {
                    return Ok(Step::Wrong(format!("it has data at {offset}, not at {written}")));
                }
                if data.len() as u64 > length - written {
                    let sentence = format!("more data than the {length} bytes of its file");
                    return Ok(Step::Wrong(sentence));
                }
                transfer.part.write(&data).map_err(target)?;
                transfer.units += 1;
            }
            FileContent::End { length: said, .. } if said != length || written != length => {
                return Ok(Step::Wrong(format!("it ends at {said} of {length} bytes")));
            }
            FileContent::End { length, digest } => {
                let Some(transfer) = self.file.take() else { return Ok(Step::More) };
                let report = Report { is_final: true, ..transfer.report() };
                transfer.part.finish(length, digest).map_err(Error::Incomplete)?;
                self.emit(ReceiverEvent::FileReceived { bytes: length, digest })?;
                return Ok(Step::Whole(report));
            }
            FileContent::Failed { is_changed, sentence } => {
                // The end of the connection, which it causes, is no loss.
                let missing = transfer.part.what_is_missing();
                if is_changed && let Some(transfer) = self.file.take() {
                    transfer.part.discard();
                    let sentence = format!("the sender ended it: {sentence}");
                    return Err(Error::Incomplete(format!("{sentence}; nothing of it is kept")));
                }
                return Err(Error::Incomplete(format!("{sentence}: {missing}")));
            }
        }
        Ok(Step::More)
    }

    fn report_file(
        &mut self,
        over: &Connection,
        flow: &ReceiveFlow,
        reports: &SendFlow,
    ) -> Result<(), Error> {
        if Instant::now() < self.progress_due {
            return Ok(());
        }
        self.progress_due = Instant::now() + PROGRESS;
        let (Some(transfer), Some(now)) = (&self.file, flow.statistics()) else { return Ok(()) };
        let report = transfer.report();
        send(reports, &report);
        let (written_bytes, connection) = (report.bytes, over.statistics());
        let (latency, delays) = (None, self.delays);
        self.emit(ReceiverEvent::Flowing(&Flowing { latency, written_bytes, connection, delays }))?;
        self.emit(ReceiverEvent::Progress(&report, &now))
    }
}
