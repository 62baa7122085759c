//! Received units.

use ontempo_transport::{Delivery, Unit};

use crate::handle::{Table, ontempo_unit};
use crate::status::{ONTEMPO_OK, call, ontempo_status};
use crate::text::fill;

pub(crate) static UNITS: Table<Delivery> = Table::new("unit");

/// What is known of a received unit. Set `size` to `sizeof (ontempo_unit_info)`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ontempo_unit_info {
    /// Bytes of this struct, as the program knows it.
    pub size: usize,
    /// Its number in the flow.
    pub number: u64,
    /// 1: it was dropped and will not arrive; the rest is 0.
    pub is_dropped: u8,
    /// Its priority.
    pub priority: u8,
    /// 1: `continues` is a unit. 0: there is none.
    pub has_continues: u8,
    /// 1: `delay_us` is known. 0: the clocks have not been compared yet.
    pub has_delay: u8,
    /// Units that it depends on and that will never arrive: it may be of no use.
    pub missing_count: u32,
    /// The unit that it continues.
    pub continues: u64,
    /// From its sending to its arrival, microseconds; the clocks' difference is estimated.
    pub delay_us: i64,
    /// From its sending to its deadline, microseconds; 0: it has none.
    pub lifetime_us: u64,
    /// Its data; valid until the unit is freed.
    pub data: *const u8,
    /// Bytes of data.
    pub length: usize,
    /// Units that it depends on, as the sender said; valid until the unit is freed.
    pub depends_on: *const u64,
    /// How many.
    pub depends_on_count: usize,
}

fn info(delivery: &Delivery) -> ontempo_unit_info {
    let mut info = ontempo_unit_info {
        size: 0,
        number: 0,
        is_dropped: 0,
        priority: 0,
        has_continues: 0,
        has_delay: 0,
        missing_count: 0,
        continues: 0,
        delay_us: 0,
        lifetime_us: 0,
        data: std::ptr::null(),
        length: 0,
        depends_on: std::ptr::null(),
        depends_on_count: 0,
    };
    let Unit { id, data, sent, arrived, lifetime, priority, continues, depends_on, missing } =
        match delivery {
            Delivery::Unit(unit) => unit,
            Delivery::Dropped(number) => {
                (info.number, info.is_dropped) = (*number, 1);
                return info;
            }
        };
    info.number = *id;
    info.priority = *priority;
    (info.has_continues, info.continues) = (continues.is_some().into(), continues.unwrap_or(0));
    if let Some(sent) = sent {
        // Estimated clocks can say that it arrived before it was sent.
        let (there, back) = (arrived.since(*sent).as_nanos(), sent.since(*arrived).as_nanos());
        info.has_delay = 1;
        info.delay_us = (there as i64 - back as i64) / 1_000;
    }
    info.lifetime_us = lifetime.map_or(0, |lifetime| lifetime.as_nanos() / 1_000);
    info.missing_count = missing.len() as u32;
    (info.data, info.length) = (data.as_ptr(), data.len());
    (info.depends_on, info.depends_on_count) = (depends_on.as_ptr(), depends_on.len());
    info
}

/// What is known of a received unit, its data included.
///
/// # Safety
/// `unit_info` points to a struct whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ontempo_unit_get(
    unit: *const ontempo_unit,
    unit_info: *mut ontempo_unit_info,
) -> ontempo_status {
    call(|| {
        let found = UNITS.get(unit)?;
        // SAFETY: as this function asks.
        unsafe { fill("unit_info", unit_info, info(&found)) }?;
        Ok(ONTEMPO_OK)
    })
}

/// Ends a unit; its data is gone.
#[unsafe(no_mangle)]
pub extern "C" fn ontempo_unit_free(unit: *mut ontempo_unit) -> ontempo_status {
    call(|| UNITS.take(unit).map(|_| ONTEMPO_OK))
}
