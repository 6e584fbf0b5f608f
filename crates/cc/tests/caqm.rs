//! Checks that CAQM senders and receivers count every byte of a hint exactly once.

use cc::caqm::{CaqmReceiver, CaqmSender, CaqmSettings};
use proptest::prelude::*;
use units::{Span, Time};
use wire::caqm::{Info, Meaning};

fn at(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

fn sender(window: u32) -> CaqmSender {
    CaqmSender::new(&CaqmSettings::default(), window, Some(Span::from_micros(200)), at(0))
}

fn hint(info: Info) -> i64 {
    match info.meaning() {
        Meaning::More(units) => i64::from(units),
        Meaning::Fewer(units) => -i64::from(units),
        Meaning::Nothing => 0,
    }
}

#[test]
fn the_window_doubles_in_start_and_afterwards_grows_by_alpha() {
    let settings = CaqmSettings { alpha_root: 0, ..CaqmSettings::default() };
    let mut sender = CaqmSender::new(&settings, 10, None, at(0));
    let mut receiver = CaqmReceiver::new(&settings);
    let mut now = 0;
    let round = |sender: &mut CaqmSender, receiver: &mut CaqmReceiver, now: &mut u64| {
        for _ in 0..sender.window() {
            receiver.data(sender.request(1), 1);
        }
        *now += 200;
        sender.measured(Some(Span::from_micros(200)), at(*now));
        while hint(Info::answer(1)) * 64 <= receiver.owed().0.count() as i64 {
            sender.answer(receiver.answer(), true, at(*now));
        }
        sender.window()
    };
    assert_eq!(round(&mut sender, &mut receiver, &mut now), 20);
    assert_eq!(round(&mut sender, &mut receiver, &mut now), 40);
    sender.answer(Info::answer(0), true, at(now));
    assert!(!sender.in_start());
    let begun = sender.window();
    for _ in 0..9 {
        round(&mut sender, &mut receiver, &mut now);
    }
    // The window grows by one unit per round trip.
    assert!((8..=10).contains(&(sender.window() - begun)), "{}", sender.window() - begun);
    // Ten round trips without a refusal have passed.
    round(&mut sender, &mut receiver, &mut now);
    assert!(sender.in_start());
}

/// Requests grow with the root of the window plus four segments, and with the root of the round
/// trip. Flows of equal rates therefore request the same with each segment. Without the four
/// segments, the smallest windows would request more than a hint holds.
#[test]
fn in_avoidance_requests_grow_with_the_root_of_the_window() {
    let asked = |window: u32, rtt: u64, alpha_root: u32| {
        let settings = CaqmSettings { alpha_root, ..CaqmSettings::default() };
        let mut sender = CaqmSender::new(&settings, window, Some(Span::from_micros(rtt)), at(0));
        sender.answer(Info::answer(0), true, at(0));
        (0..1000).map(|_| hint(sender.request(1)) as f64).sum::<f64>() / 1000.0 * 8.0
    };
    for (window, rtt) in [(1, 200), (4, 200), (100, 200), (100, 400), (10_000, 100), (50, 5000)] {
        // Above four times the standard round trip, the sender uses the standard round trip.
        let times = if rtt > 800 { 1.0 } else { rtt as f64 / 200.0 };
        let expected = 24.0 / 8.0 * 1024.0 * (times / (f64::from(window) + 4.0 * times)).sqrt();
        assert!(expected < 255.0 * 8.0);
        let found = asked(window, rtt, 24);
        assert!((found / expected - 1.0).abs() < 0.02, "{window} {rtt}: {found} {expected}");
        let flat = 1024.0 * times / f64::from(window);
        let found = asked(window, rtt, 0);
        assert!((found - flat).abs() < 8.0, "{window} {rtt}: {found} {flat}");
    }
    assert_eq!(asked(50, 200, 24), asked(100, 400, 24));
}

#[test]
fn a_refusal_first_consumes_unused_gain() {
    let mut sender = sender(10);
    assert_eq!(hint(sender.request(1)), 128);
    sender.answer(Info::answer(8), true, at(1)); // 512 of the 1024 bytes that move the window
    sender.answer(Info::answer(-8), true, at(2));
    assert_eq!(sender.window(), 10);
    sender.answer(Info::answer(-8), true, at(2));
    sender.answer(Info::answer(-8), true, at(2));
    assert_eq!(sender.window(), 9);
    for _ in 0..1000 {
        sender.answer(Info::answer(-255), true, at(3));
    }
    assert_eq!(sender.window(), 1);
    sender.on_timeout(at(4));
    assert_eq!(sender.window(), 1);
}

#[test]
fn with_loss_as_reference_every_loss_halves_the_window() {
    let settings = CaqmSettings { loss_as_reference: 1, theta: 0, ..CaqmSettings::default() };
    let mut sender = CaqmSender::new(&settings, 40, Some(Span::from_micros(200)), at(0));
    // No port has answered so far, but the reference goes on sending requests.
    assert!(!sender.on_loss(at(1)));
    assert_eq!((sender.window(), sender.in_start()), (20, true));
    sender.on_undo();
    assert_eq!(sender.window(), 40);
    // A refusal has announced this loss, but the reference halves the window anyway.
    sender.answer(Info::answer(-1), true, at(2));
    assert!(!sender.on_loss(at(3)));
    assert_eq!((sender.window(), sender.in_start()), (20, false));
    sender.on_timeout(at(4));
    assert_eq!(sender.window(), 1);
    sender.on_loss(at(5));
    assert_eq!(sender.window(), 2);
    // Without theta, the sender never returns to start.
    sender.measured(Some(Span::from_micros(200)), at(10_000_000));
    sender.on_idle(10);
    assert!(!sender.in_start());
}

#[test]
fn any_alpha_requests_at_most_a_full_hint() {
    let settings = CaqmSettings { alpha: 32_767, alpha_root: 0, ..CaqmSettings::default() };
    for window in [1, 10, 1000, 100_000] {
        let mut sender = CaqmSender::new(&settings, window, Some(Span::from_micros(800)), at(0));
        sender.answer(Info::answer(0), true, at(0));
        let expected = 32_767.0 / 8.0 * 128.0 * 4.0 / f64::from(window);
        let hints = (0..1000).map(|_| hint(sender.request(1)) as f64);
        let found = hints.sum::<f64>() / 1000.0;
        assert!((found - expected.min(255.0)).abs() < 1.0, "{window}: {found} {expected}");
    }
}

#[test]
fn an_answer_beyond_the_requests_is_ignored() {
    let mut sender = sender(10);
    let asked = hint(sender.request(4)) * 4 * 8;
    assert_eq!(asked, 4096);
    for _ in 0..1000 {
        sender.answer(Info::answer(255), true, at(1));
    }
    assert_eq!(sender.window(), 14);
    // Answers do not enlarge a window that the application does not fill.
    sender.request(4);
    sender.answer(Info::answer(64), false, at(1));
    assert_eq!(sender.window(), 14);
}

#[derive(Debug, Clone)]
enum Event {
    /// The number of merged segments, and the hint that the ports left in the tag.
    Data(u32, Left),
    Ack,
}

#[derive(Debug, Clone, Copy)]
enum Left {
    All,
    Nothing,
    Refused,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let left = prop_oneof![Just(Left::All), Just(Left::Nothing), Just(Left::Refused)];
    let event = prop_oneof![
        3 => (1_u32..50, left).prop_map(|(segments, left)| Event::Data(segments, left)),
        1 => Just(Event::Ack),
    ];
    proptest::collection::vec(event, 1..400)
}

proptest! {
    /// Reported and owed bytes together equal the received bytes.
    #[test]
    fn the_receiver_reports_every_byte_of_the_requests(events in events()) {
        let settings = CaqmSettings::default();
        let (mut sender, mut receiver) = (sender(20), CaqmReceiver::new(&settings));
        let (mut came, mut told) = (0, 0);
        for event in events {
            match event {
                Event::Data(segments, left) => {
                    let asked = sender.request(segments);
                    let info = match left {
                        Left::All => asked,
                        Left::Nothing => asked.without_hint(),
                        Left::Refused => asked.refused(),
                    };
                    receiver.data(info, segments);
                    came += i64::from(segments) * match left {
                        Left::All => hint(asked) * 8,
                        Left::Nothing => 0,
                        Left::Refused => -512,
                    };
                }
                Event::Ack => {
                    let answer = receiver.answer();
                    prop_assert!(!answer.is_request() && answer.is_caqm());
                    told += hint(answer) * 64;
                }
            }
            let (more, fewer) = receiver.owed();
            prop_assert!(more.count() == 0 || fewer.count() == 0);
            prop_assert_eq!(told + more.count() as i64 - fewer.count() as i64, came);
        }
    }

    /// With any answers (forged, lost, duplicated or reordered) the window stays within its bounds
    /// and does not grow beyond the requests.
    #[test]
    fn any_answers_keep_the_window_within_bounds_and_requests(
        answers in proptest::collection::vec((any::<u16>(), 0_u64..500, 0_u32..70, any::<bool>()), 1..400),
        window in 0_u32..100,
        most in 1_u32..5000,
        settings in proptest::array::uniform8(any::<u32>()),
        absurd: bool,
    ) {
        let usual = CaqmSettings { max_cwnd: most, ..CaqmSettings::default() };
        let [alpha, beta, min_cwnd, mtu_unit, data_hint_unit, ack_hint_unit, rtt_standard_us, alpha_root] = settings;
        let settings = match absurd {
            true => CaqmSettings { alpha, beta, min_cwnd, mtu_unit, data_hint_unit, ack_hint_unit, rtt_standard_us, alpha_root, ..usual },
            false => usual,
        };
        let mut sender = CaqmSender::new(&settings, window, None, at(0));
        let least = min_cwnd.clamp(1, 1024);
        let bounds = if absurd { least..=most.max(least) } else { 1..=most };
        let begun = u64::from(sender.window());
        let (mut now, mut asked) = (0, 0);
        for (bits, pause, segments, limited) in answers {
            now += pause;
            sender.measured((pause % 3 == 0).then(|| Span::from_micros(pause * 17)), at(now));
            asked += hint(sender.request(segments)) as u64 * u64::from(segments.max(1)) * 8;
            sender.answer(Info::from_bits(bits), limited, at(now));
            prop_assert!(bounds.contains(&sender.window()), "{} of {:?}", sender.window(), bounds);
            if !absurd {
                prop_assert!(u64::from(sender.window()) <= begun + asked / 1024);
            }
        }
    }
}

/// An event in the network: a super-packet or an ACK that arrives or is lost.
#[derive(Debug, Clone)]
enum Way {
    /// A super-packet: the number of its segments, the hint that the ports left in the tag, and
    /// the number of parts into which the network split the super-packet.
    Sent(u32, Left, u32),
    /// A lost super-packet.
    Lost(u32),
    /// An ACK: the number of times that the ACK arrives (0: lost), and the number of other ACKs
    /// that the ACK overtakes.
    Told(u32, usize),
}

fn ways() -> impl Strategy<Value = Vec<Way>> {
    let left =
        prop_oneof![4 => Just(Left::All), 1 => Just(Left::Nothing), 2 => Just(Left::Refused)];
    let way = prop_oneof![
        4 => (1_u32..45, left, 1_u32..4).prop_map(|(segments, left, pieces)| Way::Sent(segments, left, pieces)),
        1 => (1_u32..45).prop_map(Way::Lost),
        4 => (prop_oneof![1 => Just(0_u32), 6 => Just(1), 1 => Just(2)], 0_usize..4)
            .prop_map(|(copies, late)| Way::Told(copies, late)),
    ];
    proptest::collection::vec(way, 1..200)
}

proptest! {
    /// The network may merge, split and lose requests, and lose, duplicate and reorder answers.
    /// The window still follows the arriving answers to the byte, up to the requests and at most to
    /// twice its size in a round trip.
    #[test]
    fn the_window_follows_arriving_answers_to_the_byte(ways in ways(), window in 20_u32..200) {
        let settings = CaqmSettings { max_cwnd: 1 << 20, ..CaqmSettings::default() };
        let mut sender = sender(window);
        let mut receiver = CaqmReceiver::new(&settings);
        // `whole` receives each super-packet unsplit, `receiver` receives the split parts.
        let mut whole = CaqmReceiver::new(&settings);
        let (mut came, mut told, mut asked, mut arrived) = (0_i64, 0_i64, 0_i64, 0_i64);
        let mut flying: Vec<Info> = Vec::new();
        let (mut doubled, mut most, mut least) = (false, i64::from(window), i64::from(window));
        for way in ways {
            match way {
                Way::Sent(segments, left, pieces) => {
                    let request = sender.request(segments);
                    asked += hint(request) * 8 * i64::from(segments);
                    let (info, each) = match left {
                        Left::All => (request, hint(request) * 8),
                        Left::Nothing => (request.without_hint(), 0),
                        Left::Refused => (request.refused(), -512),
                    };
                    let piece = segments.div_ceil(pieces);
                    for begun in (0..segments).step_by(piece as usize) {
                        receiver.data(info, piece.min(segments - begun));
                    }
                    whole.data(info, segments);
                    came += each * i64::from(segments);
                }
                Way::Lost(segments) => asked += hint(sender.request(segments)) * 8 * i64::from(segments),
                Way::Told(copies, late) => {
                    let answer = receiver.answer();
                    prop_assert_eq!(answer, whole.answer());
                    told += hint(answer) * 64;
                    doubled |= copies > 1;
                    for _ in 0..copies {
                        let place = flying.len().saturating_sub(late);
                        flying.insert(place, answer);
                    }
                    if flying.len() > late {
                        let answer = flying.remove(0);
                        arrived += hint(answer) * 64;
                        sender.answer(answer, true, at(1));
                    }
                }
            }
            let (more, fewer) = receiver.owed();
            prop_assert_eq!(told + more.count() as i64 - fewer.count() as i64, came);
            let now = i64::from(sender.window());
            prop_assert!(now <= i64::from(window) + asked / 1024 && now <= 2 * i64::from(window) + 2);
            (most, least) = (most.max(now), least.min(now));
        }
        // If no bound was reached, the window reflects each byte that arrived.
        let free = most < 2 * i64::from(window) + 2 && least > 1 && !doubled;
        if free && arrived <= asked {
            let moved = (i64::from(sender.window()) - i64::from(window)) * 1024;
            prop_assert!((moved - arrived).abs() < 1024, "{} by {}", moved, arrived);
        }
    }
}

#[test]
fn an_unannounced_loss_halves_the_window() {
    // No port has ever refused a request, so this path has no CAQM port.
    let mut first = sender(100);
    assert!(first.on_loss(at(1000)));
    assert_eq!((first.window(), first.in_start()), (50, false));
    first.on_undo();
    assert_eq!(first.window(), 100);
    // A port has refused just before the loss, and its answers shrink the window.
    let mut told = sender(100);
    told.answer(Info::answer(-8), true, at(1000));
    assert!(!told.on_loss(at(1200)));
    assert_eq!(told.window(), 100);
    // A port refused long ago: the loss happened in another queue, but the path has a CAQM port.
    assert!(!told.on_loss(at(1000 + 5 * 200)));
    assert_eq!(told.window(), 50);
    told.on_idle(10);
    assert_eq!((told.window(), told.in_start()), (10, true));
}
