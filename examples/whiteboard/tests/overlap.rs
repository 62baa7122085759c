//! The rule of overlapping, and the messages of the page.

use ontempo_foundation::RandomStream;
use ontempo_mechanisms::delivery::{DeliveryOrder, Resequencer};
use ontempo_whiteboard::{Board, BoardFull, Bounds, HEIGHT, MAX_ENTRIES, Object, Request, WIDTH};
use proptest::prelude::*;

const BLACK: &str = "#000000";

fn point() -> impl Strategy<Value = (i32, i32)> {
    (0..=WIDTH, 0..=HEIGHT)
}

/// Objects of all sizes, so that some have many that they overlap.
fn object() -> impl Strategy<Value = Object> {
    let colour = || BLACK.to_owned();
    let near =
        |at: (i32, i32), by: (i32, i32)| ((at.0 + by.0).min(WIDTH), (at.1 + by.1).min(HEIGHT));
    prop_oneof![
        6 => (point(), (0..60, 0..60), 1..=40_i32).prop_map(move |(at, by, width)| Object::Stroke {
            points: vec![at, near(at, by)], width, colour: colour(),
        }),
        6 => (point(), (0..40, 0..40)).prop_map(move |(at, by)| Object::Rectangle {
            from: near(at, by), to: at, colour: colour(),
        }),
        1 => (point(), point()).prop_map(move |(from, to)| Object::Rectangle { from, to, colour: colour() }),
        2 => (point(), "[a-zäß]{1,9}", 8..=40_i32).prop_map(move |(at, text, size)| Object::Text {
            at, text, size, colour: colour(),
        }),
        1 => Just(Object::Wipe),
    ]
}

fn board(objects: &[Object]) -> (Board, Vec<usize>) {
    let mut board = Board::new();
    let places = objects.iter().map(|object| {
        board.add(object, vec![1]).expect("it is not full");
        board.entries().len() - 1
    });
    let places = places.collect();
    (board, places)
}

/// Whether `later` is painted after `earlier` in any case.
fn is_behind(board: &Board, later: usize, earlier: usize) -> bool {
    let mut open = vec![later];
    let mut seen = vec![false; later + 1];
    while let Some(number) = open.pop() {
        if number == earlier {
            return true;
        }
        if number > earlier && !std::mem::replace(&mut seen[number], true) {
            open.extend(board.entries()[number].depends_on.iter().map(|on| *on as usize));
        }
    }
    false
}

/// The picture as numbers of objects on a coarse grid, painted in this order.
fn picture(bounds: &[Option<Bounds>], order: impl Iterator<Item = u64>) -> Vec<u64> {
    const STEP: i32 = 5;
    let across = WIDTH / STEP + 1;
    let mut pixels = vec![u64::MAX; (across * (HEIGHT / STEP + 1)) as usize];
    for number in order {
        let Some(bounds) = bounds[number as usize] else { continue };
        for (place, pixel) in pixels.iter_mut().enumerate() {
            let (x, y) = (place as i32 % across * STEP, place as i32 / across * STEP);
            if (bounds.left..=bounds.right).contains(&x)
                && (bounds.top..=bounds.bottom).contains(&y)
            {
                *pixel = number;
            }
        }
    }
    pixels
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn an_object_is_painted_after_all_that_it_touches_and_waits_for_no_other(
        objects in prop::collection::vec(object(), 1..120),
    ) {
        let (board, places) = board(&objects);
        for (later, object) in objects.iter().enumerate() {
            for (earlier, other) in objects[..later].iter().enumerate() {
                let touches = object.bounds().touches(&other.bounds());
                prop_assert_eq!(touches, other.bounds().touches(&object.bounds()));
                if touches {
                    prop_assert!(is_behind(&board, places[later], places[earlier]));
                }
            }
            let mut named = board.entries()[places[later]].depends_on.clone();
            while let Some(on) = named.pop() {
                match places.iter().position(|place| *place == on as usize) {
                    Some(at) => prop_assert!(object.bounds().touches(&objects[at].bounds())),
                    // A joint, which names others.
                    None => named.extend(&board.entries()[on as usize].depends_on),
                }
            }
        }
        for (number, entry) in board.entries().iter().enumerate() {
            prop_assert!(entry.depends_on.len() <= 32);
            prop_assert!(entry.depends_on.iter().all(|on| *on < number as u64));
        }
    }

    #[test]
    fn whatever_order_units_arrive_in_the_picture_is_that_of_drawing(
        objects in prop::collection::vec(object(), 1..80), seed in any::<u64>(),
    ) {
        let (board, places) = board(&objects);
        let count = board.entries().len() as u64;
        let mut bounds = vec![None; count as usize];
        for (place, object) in places.iter().zip(&objects) {
            bounds[*place] = Some(object.bounds());
        }
        let mut arrivals: Vec<u64> = (0..count).collect();
        let mut random = RandomStream::new(seed, "arrivals");
        for at in (1..arrivals.len()).rev() {
            arrivals.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
        }
        let mut delivered = Vec::new();
        let mut resequencer = Resequencer::new(DeliveryOrder::PartialOrder, 1 << 20);
        for number in arrivals {
            let depends_on = &board.entries()[number as usize].depends_on;
            resequencer.arrive(number, depends_on).expect("it may arrive");
            delivered.extend(std::iter::from_fn(|| resequencer.deliver()));
        }
        prop_assert_eq!(delivered.len() as u64, count);
        prop_assert_eq!(picture(&bounds, delivered.into_iter()), picture(&bounds, 0..count));
    }

    #[test]
    fn what_a_page_sends_is_an_object_within_its_bounds_or_refused(
        object in object(), noise in prop::collection::vec(any::<u8>(), 0..200), at in 0..200_usize,
    ) {
        let message = serde_json::json!({ "do": "draw", "mark": 7, "object": object });
        let mut bytes = message.to_string().into_bytes();
        prop_assert_eq!(Request::parse(&bytes), Ok(Request::Draw { object: object.clone(), mark: 7 }));
        // Whatever else comes is refused, or within bounds, and never more than that.
        let at = at.min(bytes.len());
        bytes.splice(at.., noise.iter().copied());
        for bytes in [&bytes, &noise] {
            if let Ok(Request::Draw { object, .. }) = Request::parse(bytes) {
                prop_assert_eq!(object.clone().check(), Ok(object));
            }
        }
    }
}

#[test]
fn more_dependencies_than_a_unit_can_name_are_joined_by_units_between() {
    let dot = |at: i32| {
        let from = (at % 70 * 11, at / 70 * 11);
        Object::Rectangle { from, to: (from.0 + 5, from.1 + 5), colour: BLACK.to_owned() }
    };
    let mut board = Board::new();
    for at in 0..100 {
        board.add(&dot(at), vec![1]).expect("it is not full");
        assert_eq!(board.entries()[at as usize].depends_on, [0_u64; 0]);
    }
    board.add(&Object::Wipe, vec![1]).expect("it is not full");
    // 100 are 32 and the joints of 32 and of 31 and a joint, and of 5 and a joint at most.
    let joints = board.entries().iter().filter(|entry| entry.data.is_empty()).count();
    assert_eq!((board.entries().len(), joints), (104, 3));
    assert!((0..100).all(|dot| is_behind(&board, 103, dot)));
    // What follows waits for the last alone.
    board.add(&dot(7), vec![1]).expect("it is not full");
    assert_eq!(board.entries()[104].depends_on, [103]);
}

#[test]
fn a_board_that_is_full_refuses_objects_and_stays_as_it_is() {
    let mut board = Board::new();
    let dot = Object::Rectangle { from: (1, 1), to: (2, 2), colour: BLACK.to_owned() };
    let mut count = 0;
    while board.add(&dot, vec![1]).is_ok() {
        count += 1;
    }
    assert_eq!((count, board.entries().len()), (MAX_ENTRIES, MAX_ENTRIES));
    assert_eq!(board.add(&Object::Wipe, vec![1]), Err(BoardFull));
    let mut board = Board::new();
    assert_eq!(board.add(&dot, vec![0; 5 << 20]), Err(BoardFull));
    assert!(board.entries().is_empty());
}

#[test]
fn fields_out_of_bounds_are_refused_by_name() {
    let stroke = |points: &str, width: i32, colour: &str| {
        format!(
            r#"{{"do":"draw","mark":1,"object":{{"kind":"stroke","points":{points},"width":{width},"colour":"{colour}"}}}}"#
        )
    };
    let refused = [
        (stroke("[]", 4, BLACK), "points"),
        (stroke("[[1,1]]", 0, BLACK), "width"),
        (stroke("[[-1,1]]", 4, BLACK), "800 by 500"),
        (stroke("[[1,501]]", 4, BLACK), "800 by 500"),
        (stroke("[[1,99999999999]]", 4, BLACK), "i32"),
        (stroke("[[1,1]]", 4, "red"), "colour"),
        (stroke("[[1,1]]", 4, "#00000ä"), "colour"),
        (r#"{"do":"fly"}"#.to_owned(), "fly"),
        ("[".to_owned(), "EOF"),
    ];
    for (message, words) in refused {
        let why = Request::parse(message.as_bytes()).expect_err(&message);
        assert!(why.contains(words), "{message}: {why}");
    }
}
