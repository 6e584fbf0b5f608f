//! The rate that a limit allows: published formulas.

use units::{Bytes, Rate, Span};

/// Returns the rate of one window per round trip.
pub fn window(window: Bytes, rtt: Span) -> Option<Rate> {
    (rtt > Span::ZERO).then(|| bits(window.count() as f64 * 8.0 / rtt.secs_f64()))
}

/// Returns the rate of Reno under random loss, with an ACK for each segment: Mathis, Semke, Mahdavi
/// and Ott (1997).
pub fn mathis(mss: Bytes, rtt: Span, loss: f64) -> Option<Rate> {
    (rtt > Span::ZERO && loss > 0.0)
        .then(|| bits(mss.count() as f64 * 8.0 / rtt.secs_f64() * (1.5 / loss).sqrt()))
}

/// Returns the rate of Reno with its retransmission timeouts: Padhye, Firoiu, Towsley and Kurose
/// (1998), equation 31.
pub fn pftk(mss: Bytes, rtt: Span, rto: Span, loss: f64) -> Option<Rate> {
    if rtt == Span::ZERO || !(loss > 0.0 && loss < 1.0) {
        return None;
    }
    let fast = rtt.secs_f64() * (2.0 * loss / 3.0).sqrt();
    let slow = rto.secs_f64() * (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0);
    let slow = slow * loss * (1.0 + 32.0 * loss * loss);
    Some(bits(mss.count() as f64 * 8.0 / (fast + slow)))
}

/// Returns the rate of CUBIC's mean window outside its Reno-friendly region (RFC 9438 section 5.1).
pub fn cubic(mss: Bytes, rtt: Span, loss: f64) -> Option<Rate> {
    (rtt > Span::ZERO && loss > 0.0).then(|| {
        let segments = 1.054 * (rtt.secs_f64() / loss).powf(0.75);
        bits(segments * mss.count() as f64 * 8.0 / rtt.secs_f64())
    })
}

/// Returns the rate at which a flow would use all of a resource. At `rate` the flow uses the share
/// `used`.
pub fn of_resource(rate: Rate, used: f64) -> Option<Rate> {
    (used > 0.0).then(|| bits(rate.bits_per_second() as f64 / used.min(1.0)))
}

/// Returns the TCP payload rate of an Ethernet link of this speed, with an MTU of 1500 bytes and
/// timestamps: 1448 of 1538 bytes.
pub fn payload_of(speed: Rate) -> Rate {
    bits(speed.bits_per_second() as f64 * 1448.0 / 1538.0)
}

fn bits(bits: f64) -> Rate {
    Rate::from_bits_per_second(bits.clamp(0.0, 1e18) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_match_their_published_values() {
        let (mss, rtt) = (Bytes::new(1460), Span::from_millis(20));
        let mbit = |rate: Option<Rate>| rate.unwrap().mbit_per_second();
        assert!((mbit(window(Bytes::kib(64), rtt)) - 26.2).abs() < 0.1);
        // 1.22 segments of 1460 bytes per 20 ms, times 1/sqrt(0.01) = 10.
        assert!((mbit(mathis(mss, rtt, 0.01)) - 7.15).abs() < 0.1);
        let with_timeouts = mbit(pftk(mss, rtt, Span::from_millis(200), 0.01));
        assert!(with_timeouts < 7.15 && with_timeouts > 4.0, "{with_timeouts}");
        // RFC 9438 table: at 0.1 s and a loss of 1e-6 CUBIC's window is about 5,900 segments.
        let segments = mbit(cubic(mss, Span::from_millis(100), 1e-6)) * 1e6 * 0.1 / 8.0 / 1460.0;
        assert!((5_000.0..6_500.0).contains(&segments), "{segments}");
    }

    #[test]
    fn formulas_without_a_round_trip_or_a_loss_give_no_rate() {
        assert_eq!(window(Bytes::kib(64), Span::ZERO), None);
        assert_eq!(mathis(Bytes::new(1460), Span::from_millis(1), 0.0), None);
        assert_eq!(pftk(Bytes::new(1460), Span::from_millis(1), Span::ZERO, 1.0), None);
        assert_eq!(of_resource(Rate::from_mbit(1), 0.0), None);
    }
}
