//! Faults of the path, and of middleboxes on the path. A middlebox is a filter in front of the
//! receiver's stack: the sender, where the doctor runs, cannot see its counters.

use super::super::draft::{Dice, Draft, Path};
use super::super::proof::Proof;

pub(super) fn full_path(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(5.0, 80.0), dice.between(8.0, 60.0));
    let products = dice.between(0.7, 1.2);
    Draft::bulk(Path::new(rate, rtt, products), "path", Proof::at_least(FULL * rate))
        .details(format!("a queue of {products} bandwidth-delay products"))
}

pub(super) fn deep_queue(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(5.0, 40.0), dice.between(5.0, 25.0));
    let milliseconds = dice.between(300.0, 700.0);
    let proof = Proof { waited_ms: 0.3 * milliseconds, ..Proof::at_least(FULL * rate) };
    Draft::bulk(Path::new(rate, rtt, milliseconds / rtt), "bufferbloat", proof)
        .paced("bufferbloat|path", Proof::at_least(FULL * rate))
        .details(format!("a queue of {milliseconds} ms"))
}

pub(super) fn tiny_queue(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 80.0), dice.between(15.0, 60.0));
    let packets = dice.whole(4, 10);
    let mut path = Path::new(rate, rtt, 1.0);
    if let Path::Emulated { queue, .. } = &mut path {
        *queue = format!("droptail:{packets}p");
    }
    let proof = Proof { overflowed: 5, ..Proof::at_most(0.85 * rate) };
    let paced = Proof { overflowed: 5, ..Proof::default() };
    Draft::bulk(path, "loss", proof)
        .paced("loss|path", paced)
        .details(format!("a queue of {packets} packets"))
        .alone()
}

pub(super) fn random_loss(dice: &mut Dice) -> Draft {
    let percent = dice.between(0.3, 3.0);
    lossy(dice, percent, &format!("loss = \"{percent}%\""), "random")
}

pub(super) fn bursts_of_loss(dice: &mut Dice) -> Draft {
    let percent = dice.between(0.5, 2.0);
    // The sender counts a burst, which has three packets on average, as one loss.
    let begins = percent / 3.0 / (1.0 - percent / 100.0);
    let settings = format!("loss = \"gilbert:p={begins:.4}%,r=33.3333%\"");
    lossy(dice, percent / 3.0, &settings, "in bursts of three packets, a burst counted once")
}

/// Draws a path whose rate is three to six times the rate that Reno reaches with a loss of
/// `percent`.
fn lossy(dice: &mut Dice, percent: f64, settings: &str, words: &str) -> Draft {
    let rtt = dice.between(10.0, 80.0);
    let allowed = 1.22 * SEGMENT_BITS / 1e3 / rtt / (percent / 100.0).sqrt();
    let rate = three(allowed * dice.between(3.0, 6.0)).clamp(5.0, 100.0);
    let path = Path::new(rate, rtt, 1.5).forward(settings);
    let proof = Proof { lost: 5, ..Proof::at_most(0.7 * rate) };
    let paced = Proof { lost: 5, ..Proof::at_least(0.8 * rate) };
    Draft::bulk(path, "loss", proof)
        .paced("path|bufferbloat", paced)
        .details(format!("{percent:.2} % lost {words}"))
}

pub(super) fn reordering(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(30.0, 100.0), dice.between(15.0, 50.0));
    let percent = dice.between(3.0, 8.0);
    let late = three(rtt * dice.between(0.4, 0.7));
    let path = Path::new(rate, rtt, 3.0).forward(&format!("reorder = \"{percent}%,{late}ms\""));
    let proof = Proof { reordered: 30, ..Proof::at_most(0.7 * rate) };
    let paced = Proof { reordered: 30, ..Proof::at_least(0.8 * rate) };
    Draft::bulk(path, "reordering", proof)
        .paced("path|bufferbloat", paced)
        // With this setting RACK waits for late packets for a fixed time: a quarter of the minimum
        // round trip.
        .key("setup-sender", "sysctl -qw net.ipv4.tcp_recovery=3")
        .details(format!("{percent} % held back by {late} ms"))
}

pub(super) fn shared_path(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(15.0, 80.0), dice.between(10.0, 50.0));
    let others = dice.whole(1, 4);
    let more = "$WEIR doctor-load send $RECEIVER:$PORT &\n".repeat(others as usize);
    Draft::bulk(Path::new(rate, rtt, 1.5), "path|bufferbloat", Proof::at_least(FULL * rate))
        .key("sender", format!("{more}exec $WEIR doctor-load send $RECEIVER:$PORT"))
        .traffic("several bulk")
        .details(format!("{} connections", others + 1))
        .alone()
}

pub(super) fn own_datagrams(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(10.0, 60.0), dice.between(8.0, 50.0));
    let sent = three(rate * dice.between(0.75, 1.0));
    let others =
        format!("$WEIR doctor-load send $RECEIVER:5202 --udp --chunk 1200B --rate {sent}mbit &\n");
    Draft::bulk(Path::new(rate, rtt, 1.0), "own-datagrams", Proof::at_least(0.8 * rate))
        .key("sender", format!("{others}exec $WEIR doctor-load send $RECEIVER:$PORT"))
        .key(
            "receiver",
            "$WEIR doctor-load receive $RECEIVER:5202 --udp --chunk 2KiB &\n\
             exec $WEIR doctor-load receive $RECEIVER:$PORT",
        )
        .details(format!("{sent} Mbit/s of datagrams"))
        .alone()
}

pub(super) fn thin_way_back(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(40.0, 100.0), dice.between(8.0, 50.0));
    let back = three(rate * dice.between(0.4, 1.0));
    let packets = dice.whole(8, 40);
    let settings = format!("rate = \"{back}kbit\", queue = \"droptail:{packets}p\"");
    let proof =
        Proof { overflowed_back: 20, waited_back_ms: 0.5 * rtt, ..Proof::at_most(0.85 * rate) };
    Draft::bulk(Path::new(rate, rtt, 2.0).backward(&settings), "way-back", proof)
        .details(format!("{back} kbit/s and {packets} packets back"))
        .alone()
}

pub(super) fn full_way_back(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 80.0), dice.between(8.0, 40.0));
    let back = three(dice.between(1.0, 4.0));
    let milliseconds = dice.between(80.0, 250.0);
    let bytes = back * milliseconds * 125.0;
    let settings = format!("rate = \"{back}mbit\", queue = \"droptail:{bytes:.0}B\"");
    let sent = three(back * dice.between(1.1, 1.5));
    let proof = Proof {
        overflowed_back: 20,
        waited_back_ms: 0.4 * milliseconds,
        ..Proof::at_most(0.85 * rate)
    };
    Draft::bulk(Path::new(rate, rtt, 2.0).backward(&settings), "way-back", proof)
        .key(
            "sender",
            "$WEIR doctor-load receive $SENDER:5203 --udp --chunk 2KiB &\n\
             exec $WEIR doctor-load send $RECEIVER:$PORT",
        )
        .key(
            "receiver",
            format!(
                "$WEIR doctor-load send $SENDER:5203 --udp --chunk 1200B --rate {sent}mbit &\n\
                 exec $WEIR doctor-load receive $RECEIVER:$PORT"
            ),
        )
        .details(format!("{sent} Mbit/s of datagrams fill {back} Mbit/s back"))
        .alone()
}

pub(super) fn policer(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(30.0, 100.0), dice.between(8.0, 50.0));
    let allowed = rate * dice.between(0.1, 0.3);
    let kilobytes = (allowed * 125.0).round();
    let burst = dice.whole(20, 100);
    let rule = format!(
        "nft add rule ip fault in tcp dport $PORT limit rate over \
         {kilobytes} kbytes/second burst {burst} kbytes drop"
    );
    Draft::bulk(Path::new(rate, rtt, 1.5), "loss|policer", Proof::at_most(0.9 * rate))
        .paced("loss|policer|path", Proof::default())
        .key("setup-receiver", format!("{FILTER}{rule}"))
        .details(format!("drops beyond {:.1} Mbit/s", kilobytes / 125.0))
        .alone()
}

pub(super) fn black_hole(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(10.0, 100.0), dice.between(2.0, 60.0));
    let passes = dice.whole(700, 1450);
    let rule = format!("nft add rule ip fault in meta length {}-65535 drop", passes + 1);
    Draft::bulk(Path::new(rate, rtt, 1.0), "mtu-black-hole", Proof::at_most(0.3))
        .key("setup-receiver", format!("{FILTER}{rule}"))
        .key("watch-at-least", "3")
        .details(format!("drops packets of more than {passes} bytes"))
        .alone()
}

pub(super) fn filter_of_handshakes(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(10.0, 100.0), dice.between(2.0, 60.0));
    Draft::bulk(Path::new(rate, rtt, 1.0), "no-answer", Proof::default())
        .key("setup-receiver", format!("{FILTER}nft add rule ip fault in tcp dport $PORT drop"))
        .traffic("connects")
}

pub(super) fn paced(dice: &mut Dice) -> Draft {
    let (rate, rtt) = (dice.between(20.0, 100.0), dice.between(2.0, 50.0));
    let wanted = three(rate * dice.between(0.05, 0.4));
    let chunk = dice.pick(&["4KiB", "16KiB", "32KiB"]);
    let proof = Proof::within(0.8 * wanted, 1.3 * wanted);
    Draft::bulk(Path::new(rate, rtt, 1.0), "nothing", proof)
        .key(
            "sender",
            format!("$WEIR doctor-load send $RECEIVER:$PORT --chunk {chunk} --rate {wanted}mbit"),
        )
        .traffic("paced")
        .details(format!("{wanted} Mbit/s in writes of {chunk}"))
        .alone()
}

pub(super) fn acknowledgements_lost(dice: &mut Dice) -> Draft {
    let percent = dice.between(5.0, 30.0);
    let mut draft = paced(dice);
    draft.path = draft.path.backward(&format!("loss = \"{percent}%\""));
    draft.details += &format!(", {percent} % of the acknowledgements lost");
    draft
}

pub(super) fn paced_at_receiver(dice: &mut Dice) -> Draft {
    paced(dice).key("side", "receiver")
}

/// Rounds to three digits, which are exact enough, and short.
pub(super) fn three(value: f64) -> f64 {
    let scale = 10_f64.powf(2.0 - value.log10().floor());
    (value * scale).round() / scale
}

const FILTER: &str = "nft add table ip fault\n\
    nft 'add chain ip fault in { type filter hook prerouting priority -300; }'\n";
/// Minimum share of a path's rate that a bulk transfer reaches if nothing else limits it.
const FULL: f64 = 0.85;
const SEGMENT_BITS: f64 = 1448.0 * 8.0;
