//! Sends frames of every kind through a CAQM port. The port answers only complete requests, and
//! passes all other frames unchanged.
#![allow(clippy::unwrap_used)]

use link::{Link, LinkConfig, Packet};
use proptest::prelude::*;
use units::{Bytes, Time};
use wire::caqm::{Info, Meaning, TPID};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame(Vec<u8>);

impl Packet for Frame {
    fn size(&self) -> Bytes {
        Bytes::new(self.0.len() as u64)
    }

    fn flow(&self) -> u64 {
        0
    }

    fn ecn_capable(&self) -> bool {
        false
    }

    fn mark_congestion(&mut self) {}

    fn corrupt(&mut self, _random: u64) {}

    fn caqm(&self, tpid: u16) -> Option<Info> {
        wire::caqm::read(&self.0, tpid)
    }

    fn set_caqm(&mut self, tpid: u16, info: Info) {
        wire::caqm::write(&mut self.0, tpid, info);
    }

    fn answer_caqm_offer(&mut self, tpid: u16) {
        wire::caqm::offer::answer(&mut self.0, tpid);
    }
}

/// Builds a frame of two MAC addresses followed by these 16-bit words.
fn frame(words: &[u16]) -> Frame {
    let mut bytes = vec![2; 12];
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    Frame(bytes)
}

/// Passes the frames, in order, through a port whose queue is too long, so that the port refuses
/// every request.
fn refused(frames: &[Frame]) -> Vec<Frame> {
    let config = LinkConfig {
        rate: "1mbit".parse().unwrap(),
        queue: "caqm:0B,limit=100000p,period=1ms,spread=off,beta=1B".parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config, Time::ZERO).unwrap();
    let filler = Frame(vec![0; 1500]);
    for number in 0..300_u64 {
        link.arrive(Time::from_nanos(number), filler.clone());
    }
    for frame in frames {
        link.arrive(Time::from_nanos(1000), frame.clone());
    }
    // Add filler, which keeps the queue long until the last of the frames has left.
    for number in 0..300 {
        link.arrive(Time::from_nanos(2000 + number), filler.clone());
    }
    let all = std::iter::from_fn(|| link.deliver(Time::from_nanos(u64::MAX - 1)));
    let all: Vec<Frame> = all.map(|delivery| delivery.packet).collect();
    all[300..300 + frames.len()].to_vec()
}

#[test]
fn only_requests_after_at_most_two_vlan_tags_are_refused() {
    let asks = Info::request(200).bits();
    let (customer, service) = ([0x8100, 5], [0x9100, 6]);
    let tag = [TPID, asks, 0x0800, 0x4500, 0];
    let requests = [
        frame(&tag),
        frame(&[&customer[..], &tag].concat()),
        frame(&[&service[..], &customer, &tag].concat()),
        // A frame with two tags: the port reads the outer tag.
        frame(&[&[TPID, asks][..], &tag].concat()),
    ];
    for (before, after) in requests.iter().zip(refused(&requests)) {
        let answer = wire::caqm::read(&after.0, TPID).unwrap();
        assert!(matches!(answer.meaning(), Meaning::Fewer(_)) && answer.is_request(), "{answer}");
        let changed = before.0.iter().zip(&after.0).filter(|(a, b)| a != b).count();
        assert_eq!((changed, before.0.len()), (1, after.0.len()));
    }
    let others = [
        frame(&[TPID]),
        frame(&[TPID, asks]),
        frame(&[0x8100, 5, TPID]),
        frame(&[&customer[..], &service, &customer, &tag].concat()),
        frame(&[TPID, Info::answer(9).bits(), 0x0800, 0x4500]),
        frame(&[TPID, Info::request(9).of_kind(1).bits(), 0x0800, 0x4500]),
        frame(&[0x88b5, asks, 0x0800, 0x4500]),
        frame(&[0x0800, TPID, asks, 0x0800]),
        Frame(Vec::new()),
        Frame(vec![0x88]),
    ];
    assert_eq!(refused(&others), others);
}

#[test]
fn a_truncated_request_passes_unchanged() {
    let whole = frame(&[0x9100, 6, 0x8100, 5, TPID, Info::request(9).bits(), 0x0800]);
    let cut: Vec<Frame> =
        (0..whole.0.len()).map(|length| Frame(whole.0[..length].to_vec())).collect();
    assert_eq!(refused(&cut), cut);
    assert_ne!(refused(std::slice::from_ref(&whole)), [whole]);
}

/// Builds a TCP SYN over IPv4 that offers CAQM, with invalid checksums.
fn offer(info: Info) -> Frame {
    let ip = [0x0800, 0x4500, 52, 0, 0x4000, 0x4006, 0, 0x0a00, 1, 0x0a00, 2];
    let tcp = [7000, 80, 0, 1, 0, 0, 0x8002, 0xfaf0, 0, 0];
    let option = [0xfe0a, 0x4341, 0x514d, TPID, info.bits(), 0];
    frame(&[&ip[..], &tcp, &option].concat())
}

#[test]
fn an_offer_is_answered_even_without_credit() {
    let asks = [Info::question(), Info::question().echoed()];
    let answered = refused(&asks.map(offer));
    for (asks, answered) in asks.into_iter().zip(answered) {
        assert_eq!(wire::caqm::offer::read(&answered.0, TPID), Some(asks.answered()));
    }
    // The port does not change an offer that another port has answered, or an answer to the other
    // end.
    let passes = [
        offer(Info::question().answered()),
        offer(Info::question().of_kind(2)),
        frame(&[TPID, Info::go_ahead(true).bits(), 0x0800]),
        frame(&[TPID, Info::go_ahead(false).bits(), 0x0800]),
    ];
    assert_eq!(refused(&passes), passes);
    // A port with another discipline does not answer.
    let mut link = Link::new(
        &LinkConfig { queue: "droptail:100p".parse().unwrap(), ..LinkConfig::default() },
        Time::ZERO,
    )
    .unwrap();
    link.arrive(Time::ZERO, offer(Info::question()));
    let out = link.deliver(Time::from_nanos(u64::MAX - 1)).unwrap();
    assert_eq!(out.packet, offer(Info::question()));
}

proptest! {
    /// The port changes at most two bytes of a frame, and never grants more than a request.
    #[test]
    fn any_frame_leaves_in_order_and_with_its_size(
        frames in proptest::collection::vec(
            proptest::collection::vec(
                prop_oneof![Just(0x81), Just(0x91), Just(0), Just(0x88), Just(0xa8), any::<u8>()], 0..40,
            ),
            1..60,
        ),
        spread: bool,
        bits: u16,
    ) {
        let spread = if spread { "on" } else { "off" };
        let config = LinkConfig {
            rate: "10mbit".parse().unwrap(),
            queue: format!("caqm:1KB,limit=1000p,period=100us,p=30%,spread={spread}").parse().unwrap(),
            ..LinkConfig::default()
        };
        let mut link = Link::new(&config, Time::ZERO).unwrap();
        let mut sent = Vec::new();
        for (number, bytes) in frames.into_iter().enumerate() {
            // Every other frame has a tag with arbitrary bits.
            let frame = match number % 2 {
                0 => Frame(bytes),
                _ => frame(&[TPID, bits ^ bytes.len() as u16, 0x0800]),
            };
            link.arrive(Time::from_nanos(number as u64 * 20_000), frame.clone());
            sent.push(frame);
        }
        let left: Vec<Frame> =
            std::iter::from_fn(|| link.deliver(Time::from_nanos(u64::MAX - 1)).map(|d| d.packet)).collect();
        prop_assert_eq!(left.len(), sent.len());
        let units = |frame: &Frame| match wire::caqm::read(&frame.0, TPID).map(Info::meaning) {
            Some(Meaning::More(units)) => units,
            _ => 0,
        };
        for (before, after) in sent.iter().zip(&left) {
            prop_assert_eq!(before.0.len(), after.0.len());
            let changed = before.0.iter().zip(&after.0).filter(|(a, b)| a != b).count();
            let asks = wire::caqm::read(&before.0, TPID).is_some_and(Info::is_request);
            let most = if asks { 2 } else { 0 };
            prop_assert!(changed <= most, "{} of {}", changed, most);
            prop_assert!(units(after) <= units(before));
        }
    }
}
