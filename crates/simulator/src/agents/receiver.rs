//! The receiving application: counts delivered units and compares them with their due times.

use ontempo_foundation::Time;
use ontempo_mechanisms::playout::Playout;
use ontempo_runtime::{Messages, Showing, ShownStream};

use super::consumer::Consumer;

/// One unit of a stream: when it was due to be sent and when it was delivered, if it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitRecord {
    pub(crate) unit: u64,
    pub(crate) due: Time,
    pub(crate) delivered: Option<Time>,
}

/// Counters and records of a receiver.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Receiver {
    delivered: u64,
    playout: Option<Box<Playout>>,
    records: Option<Vec<UnitRecord>>,
    messages: Option<Box<Messages>>,
    consumer: Option<Box<Consumer>>,
    film: Option<Box<FilmReceiver>>,
}

/// A film that arrives as a stream of bytes, or as its datagrams.
struct FilmReceiver {
    shown: ShownStream,
    /// Payload of a packet of the stream in bytes.
    payload: u64,
}

impl Receiver {
    /// The receiver of a film's datagrams.
    pub(crate) fn of_film(showing: Showing) -> Self {
        let film = FilmReceiver { shown: ShownStream::new(showing), payload: 0 };
        Self { film: Some(Box::new(film)), ..Self::default() }
    }

    /// The receiver of a film in a stream whose packets carry `payload` bytes.
    pub(crate) fn of_film_in_stream(showing: Showing, payload: u64) -> Self {
        let mut receiver = Self::of_film(showing);
        if let Some(film) = &mut receiver.film {
            film.payload = payload;
        }
        receiver
    }

    /// A datagram of the film, or some of its transport packets, is given to the application.
    pub(crate) fn show(&mut self, now: Time, number: u64, packets: u64) {
        if let Some(film) = &mut self.film {
            film.shown.showing_mut().arrived(now, number, packets);
        }
    }

    /// What has arrived of the film.
    pub(crate) fn showing(&self) -> Option<&Showing> {
        self.film.as_ref().map(|film| film.shown.showing())
    }

    /// The receiver of ADUs.
    pub(crate) fn of_adus(consumer: Consumer) -> Self {
        Self { consumer: Some(Box::new(consumer)), ..Self::default() }
    }

    pub(crate) fn new(
        playout: Option<Playout>,
        record_units: bool,
        messages: Option<Messages>,
    ) -> Self {
        let records = (record_units && playout.is_some()).then(Vec::new);
        let messages = messages.map(Box::new);
        let playout = playout.map(Box::new);
        Self { playout, records, messages, ..Self::default() }
    }

    /// The flow's messages, if they are measured.
    #[inline]
    pub(crate) fn messages_mut(&mut self) -> Option<&mut Messages> {
        self.messages.as_deref_mut()
    }

    pub(crate) fn messages(&self) -> Option<&Messages> {
        self.messages.as_deref()
    }

    /// Whether a delivered unit is counted, and no more.
    pub(crate) fn counts_only(&self) -> bool {
        self.playout.is_none()
            && self.messages.is_none()
            && self.consumer.is_none()
            && self.film.is_none()
    }

    /// Delivers a unit where [they are only counted](Self::counts_only).
    #[inline]
    pub(crate) fn count(&mut self) {
        self.delivered += 1;
    }

    /// Delivers `unit` to the application; `due` is when a unit of a stream was due to be sent.
    #[inline]
    pub(crate) fn deliver(&mut self, now: Time, unit: u64, due: Option<Time>) {
        self.delivered += 1;
        if let Some(film) = &mut self.film {
            // All packets up to this one have arrived.
            film.shown.arrived_up_to(now, (unit + 1) * film.payload);
        }
        let (Some(playout), Some(due)) = (&mut self.playout, due) else { return };
        playout.on_unit(due, now);
        if let Some(records) = &mut self.records {
            records.push(UnitRecord { unit, due, delivered: Some(now) });
        }
    }

    /// `unit`, due at `due`, had not been delivered when the run ended.
    pub(crate) fn miss(&mut self, unit: u64, due: Time) {
        if let Some(playout) = &mut self.playout {
            playout.on_missing(1, due);
        }
        if let Some(records) = &mut self.records {
            records.push(UnitRecord { unit, due, delivered: None });
        }
    }

    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn consumer(&self) -> Option<&Consumer> {
        self.consumer.as_deref()
    }

    #[inline]
    pub(crate) fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        self.consumer.as_deref_mut()
    }

    pub(crate) fn wants_due_times(&self) -> bool {
        self.playout.is_some()
    }

    pub(crate) fn playout(&self) -> Option<&Playout> {
        self.playout.as_deref()
    }

    pub(crate) fn records(&self) -> &[UnitRecord] {
        self.records.as_deref().unwrap_or_default()
    }
}
