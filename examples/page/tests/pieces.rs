//! Cutting pictures into pieces, and putting them together in any order.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use ontempo_web_page::jpeg::{Pieces, layout_of, split, together};
use ontempo_web_page::{Assembly, Described, Page, Paint, Picture, Request, Taken};
use proptest::prelude::*;

const NAMES: [&str; 4] = ["meadow.jpg", "sun.jpg", "flowers.jpg", "hills.jpg"];

fn file(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("pictures").join(name)).expect("a picture")
}

fn page() -> Page {
    let pictures = NAMES.map(|name| Picture {
        name: name.to_owned(),
        alt: "some".to_owned(),
        jpeg: file(name),
    });
    Page::new("A page", "of pictures", &pictures).expect("it can be cut")
}

fn pixels(pieces: &Pieces) -> usize {
    pieces.pieces.iter().map(|piece| piece.pixels).sum()
}

#[test]
fn intervals_cover_each_pixel_once_and_are_the_file() {
    for name in &NAMES[..3] {
        let data = file(name);
        let cut = split(&data).expect("it can be cut");
        let layout = cut.layout;
        assert!(!layout.is_progressive && cut.pieces.len() > 40, "{name}: {}", cut.pieces.len());
        assert_eq!(layout_of(&cut.pieces[0].data), Ok(layout));
        let mut seen = HashSet::new();
        for number in 0..cut.pieces.len() - 1 {
            for run in layout.runs(number) {
                for pixel in 0..run.width * run.height {
                    assert!(seen.insert((run.x + pixel % run.width, run.y + pixel / run.width)));
                }
            }
        }
        assert_eq!(
            (seen.len(), pixels(&cut)),
            (layout.width * layout.height, layout.width * layout.height)
        );
        assert!(seen.iter().all(|(x, y)| *x < layout.width && *y < layout.height));
        // With the markers between them, they are the file.
        let mut whole = cut.pieces[0].data.clone();
        for (number, piece) in cut.pieces[1..].iter().enumerate() {
            if number > 0 {
                whole.extend([0xff, 0xd0 + ((number - 1) % 8) as u8]);
            }
            whole.extend(&piece.data);
            assert_eq!(piece.depends_on, [0]);
        }
        whole.extend([0xff, 0xd9]);
        assert!(whole == data, "{name}");
    }
}

#[test]
fn scans_are_the_file_and_depend_on_those_that_they_refine() {
    let data = file(NAMES[3]);
    let cut = split(&data).expect("it can be cut");
    assert!(cut.layout.is_progressive && cut.pieces.len() > 5, "{}", cut.pieces.len());
    assert_eq!(layout_of(&cut.pieces[0].data), Ok(cut.layout));
    assert_eq!(pixels(&cut), cut.layout.width * cut.layout.height);
    let scans = cut.pieces[1..].iter().map(|piece| &piece.data[..]);
    assert!(together(&cut.pieces[0].data, scans) == data);
    // Those of libjpeg: DC; luminance 1-5; Cr, Cb 1-63; luminance 6-63; then luminance, DC, Cr, Cb, luminance again.
    let depends: Vec<_> = cut.pieces.iter().map(|piece| piece.depends_on.clone()).collect();
    assert_eq!(depends[1], [0]);
    assert_eq!(depends[2], [0, 1]);
    assert!(depends[3] == [0, 1] && depends[4] == [0, 1], "{depends:?}");
    assert!(depends[2..].iter().all(|on| on.starts_with(&[0, 1])), "{depends:?}");
    assert!(depends[6..].iter().any(|on| on.contains(&2) && on.contains(&5)), "{depends:?}");
}

/// What has been painted, from units in this order; each after those that it depends on.
fn painted(page: &Page, order: impl Iterator<Item = u64>) -> (Described, Vec<Paint>) {
    let mut assembly = Assembly::new();
    let mut described = None;
    let mut paints = Vec::new();
    for number in order {
        match assembly.take(&page.units()[number as usize].data).expect("nothing is missing") {
            Taken::Page(page) => described = Some(page),
            Taken::Tables => {}
            Taken::Paint(paint) => paints.push(paint),
        }
    }
    (described.expect("it was first"), paints)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn in_whatever_order_units_come_the_same_is_painted(keys in prop::collection::vec(any::<u32>(), 1_000)) {
        let page = page();
        let count = page.units().len();
        prop_assert!(count < keys.len());
        let mut delivered = vec![false; count];
        let mut order = Vec::new();
        // Of the units that may be delivered, the one with the least key.
        while order.len() < count {
            let may = |number: &usize| {
                !delivered[*number] && page.units()[*number].depends_on.iter().all(|on| delivered[*on as usize])
            };
            let next = (0..count).filter(may).min_by_key(|number| keys[*number]).expect("one may");
            delivered[next] = true;
            order.push(next as u64);
        }
        let (described, any) = painted(&page, order.into_iter());
        let (same, in_order) = painted(&page, 0..count as u64);
        prop_assert_eq!(&described, &same);
        for (number, picture) in described.pictures.iter().enumerate() {
            let of = |paints: &[Paint]| -> Vec<Paint> {
                let mut some: Vec<_> =
                    paints.iter().filter(|paint| usize::from(paint.picture) == number).cloned().collect();
                if picture.is_progressive {
                    // What is painted last is what stays.
                    some.drain(..some.len() - 1);
                }
                some.sort_by_key(|paint| (paint.runs[0].y, paint.runs[0].x));
                some
            };
            prop_assert!(of(&any) == of(&in_order));
            prop_assert!(of(&any).iter().all(|paint| paint.is_final));
        }
    }

    #[test]
    fn damaged_files_and_units_are_refused_or_stay_within_the_picture(
        which in 0..4_usize, at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut data = file(NAMES[which]);
        // Half of them in the tables.
        let at = at.index(if with % 2 == 0 { data.len() } else { 700 });
        data[at] = with;
        if cut {
            data.truncate(at);
        }
        if let Ok(cut) = split(&data) {
            prop_assert_eq!(pixels(&cut), cut.layout.width * cut.layout.height);
            prop_assert!(cut.pieces.iter().all(|piece| piece.depends_on.len() <= 32));
        }
        let mut assembly = Assembly::new();
        let page = page();
        for (number, unit) in page.units().iter().enumerate() {
            let mut data = unit.data.clone();
            if number > 0 {
                let at = at % data.len();
                data[at] = with;
            }
            if let Ok(Taken::Paint(paint)) = assembly.take(&data) {
                prop_assert!(paint.runs.len() < 1_000 && paint.to_bytes(0).len() < 1 << 20);
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_is_an_error_that_says_what_to_do() {
    let why = |data: &[u8]| split(data).expect_err("it cannot be cut").to_string();
    assert!(why(b"GIF89a").contains("no JPEG"));
    let mut data = file(NAMES[0]);
    assert!(why(&data[..data.len() / 2]).contains("truncated"));
    assert!(why(&data[..30]).contains("truncated"));
    // Without its restart interval.
    let dri = data.windows(2).position(|pair| pair == [0xff, 0xdd]).expect("it has one");
    data[dri + 4..dri + 6].fill(0);
    assert!(why(&data).contains("jpegtran -restart 1"));
    let pictures =
        [Picture { name: "--picture some.jpg".to_owned(), alt: String::new(), jpeg: data }];
    let why = Page::new("", "", &pictures).expect_err("it cannot be cut").to_string();
    assert!(why.contains("--picture some.jpg"), "{why}");
}

#[test]
fn messages_of_the_page_are_checked_by_field() {
    assert_eq!(Request::parse(br#"{"do":"load"}"#), Ok(Request::Load));
    let path =
        br#"{"do":"path","impairment":{"loss_percent":99,"round_trip_ms":1,"rate_kbps":1000}}"#;
    assert!(Request::parse(path).expect_err("too much").contains("loss_percent"));
    assert!(Request::parse(b"{}").is_err() && Request::parse(b"\xff").is_err());
}
