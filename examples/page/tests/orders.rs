//! Both orders in virtual time: the same page over the same path, with the same losses.

#[path = "../../window/tests/virtual_time/mod.rs"]
mod virtual_time;

use std::fs;
use std::path::Path;

use ontempo_foundation::Duration;
use ontempo_transport::DeliveryOrder;
use ontempo_web_page::{Page, Picture};

use virtual_time::{CREDIT, times};

fn page() -> Page {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures");
    let pictures = ["meadow.jpg", "sun.jpg", "flowers.jpg", "hills.jpg"].map(|name| {
        let jpeg = fs::read(folder.join(name)).expect("a picture");
        Picture { name: name.to_owned(), alt: String::new(), jpeg }
    });
    Page::new("A page", "of pictures", &pictures).expect("it can be cut")
}

/// The time to shares of the pixels, milliseconds.
fn times_to(page: &Page, delivered: &[Duration]) -> [f64; 3] {
    let mut order: Vec<_> = delivered.iter().zip(page.units()).collect();
    order.sort_by_key(|(at, _)| **at);
    let all: usize = page.units().iter().map(|unit| unit.pixels).sum();
    [0.5, 0.9, 1.0].map(|share| {
        let mut shown = 0;
        let found = order.iter().find(|(_, unit)| {
            shown += unit.pixels;
            shown as f64 >= share * all as f64
        });
        found.expect("all is delivered").0.as_secs_f64() * 1e3
    })
}

#[test]
fn in_any_order_no_piece_is_delivered_later_and_half_of_the_pixels_come_sooner() {
    let page = page();
    let units: Vec<_> =
        page.units().iter().map(|unit| (&unit.data[..], &unit.depends_on[..])).collect();
    const SEEDS: u32 = 20;
    let mut sums = [[0.0; 3]; 2];
    for seed in 0..SEEDS {
        let orders = [DeliveryOrder::InOrder, DeliveryOrder::PartialOrder];
        let [in_order, any] = orders.map(|order| times(order, seed.into(), &units, Duration::ZERO));
        let later = any.iter().zip(&in_order).filter(|(any, in_order)| **any > **in_order + CREDIT);
        assert_eq!(later.count(), 0, "seed {seed}");
        for (sum, delivered) in sums.iter_mut().zip([in_order, any]) {
            let times = times_to(&page, &delivered);
            sum.iter_mut().zip(times).for_each(|(sum, time)| *sum += time / f64::from(SEEDS));
        }
    }
    let [in_order, any] = sums;
    println!(
        "{} units; to 50, 90 and 100 % of the pixels, mean of {SEEDS} loads, ms: in order {in_order:.0?}, in any \
         order {any:.0?}",
        units.len()
    );
    assert!(
        any[0] < in_order[0] && any[1] < in_order[1] && any[2] <= in_order[2] + 0.1,
        "{sums:?}"
    );
}
