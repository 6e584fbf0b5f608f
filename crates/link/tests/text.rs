//! Checks that a printed value parses to the same value, and that the error for an invalid text
//! tells the valid form.

#![allow(clippy::unwrap_used)]

use link::{Capacity, Jitter, LinkConfig, Loss, Overhead, QueueConfig, Reorder};
use proptest::prelude::*;
use std::fmt::{Debug, Display};
use std::str::FromStr;

fn same<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Result<(), TestCaseError>
where
    T::Err: Debug,
{
    let value: T = text.parse().unwrap();
    let printed = value.to_string();
    prop_assert_eq!(&printed.parse::<T>().unwrap(), &value, "{} as {}", text, printed);
    Ok(())
}

prop_compose! {
    fn share()(millionths in 0u32..=1_000_000) -> String {
        format!("{}%", f64::from(millionths) / 10_000.0)
    }
}

prop_compose! {
    fn span()(nanos in 1u64..1_000_000_000_000) -> String {
        format!("{nanos}ns")
    }
}

fn limit() -> impl Strategy<Value = String> {
    prop_oneof![
        (1u64..1_000_000_000).prop_map(|bytes| format!("{bytes}B")),
        (1u64..1_000_000).prop_map(|packets| format!("{packets}p")),
    ]
}

fn flag(name: &'static str) -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just(name)]
}

proptest! {
    #[test]
    fn printed_losses_parse_to_themselves(a in share(), b in share(), c in share(), d in share(), every in 1u64..3_600_000_000_000, trace in "[01]{1,50}") {
        same::<Loss>(&a)?;
        same::<Loss>(&format!("gilbert:p={a}"))?;
        same::<Loss>(&format!("gilbert:p={a},r={b},h={c},k={d}"))?;
        same::<Loss>(&format!("gilbert:p={a},r={b},h={c},k={d},every={every}ns"))?;
        same::<Loss>(&format!("trace:{trace}"))?;
    }

    #[test]
    fn printed_delays_parse_to_themselves(spread in 0u64..3_600_000_000_000, share in share(), span in span(), reorder in flag(",reorder"), shape in prop_oneof![Just(""), Just(",uniform"), Just(",normal")]) {
        same::<Jitter>(&format!("{spread}ns{shape}{reorder}"))?;
        same::<Reorder>(&format!("{share},{span}"))?;
    }

    #[test]
    fn printed_rates_parse_to_themselves(bits in 1u64..1_000_000_000_000_000, mut times in prop::collection::vec(0u64..100_000, 1..50), bytes in -22..=10_000_i32) {
        same::<Capacity>(&format!("{bits}bit"))?;
        times.sort_unstable();
        times.push(100_000);
        let times: Vec<String> = times.iter().map(u64::to_string).collect();
        same::<Capacity>(&format!("trace:{}", times.join(",")))?;
        same::<Overhead>(&bytes.to_string())?;
    }

    #[test]
    fn printed_queues_parse_to_themselves(limit in limit(), target in 1u64..1_000_000, longer in 0u64..1_000_000, flows in 1u32..65_536, quantum in 64u64..100_000, ecn in flag(",ecn")) {
        let interval = target + longer;
        same::<QueueConfig>(&format!("droptail:{limit}"))?;
        same::<QueueConfig>(&format!("headdrop:limit={limit}"))?;
        same::<QueueConfig>(&format!("codel:limit={limit},target={target}ns,interval={interval}ns{ecn}"))?;
        same::<QueueConfig>(&format!("fq_codel:{limit},target={target}ns,interval={interval}ns,flows={flows},quantum={quantum}B{ecn}"))?;
        same::<QueueConfig>(&format!("pie:limit={limit},target={target}ns,update={interval}ns,burst={longer}ns{ecn}"))?;
        same::<QueueConfig>(&format!("caqm:target={quantum}B,limit={limit},period={target}ns,beta={flows}B,tpid=0x88b5"))?;
    }

    #[test]
    fn printed_red_queues_parse_to_themselves(min in 1u64..1000, more in 1u64..1000, limit in 2000u64..10_000, p in share(), weight in share(), unit in prop_oneof![Just("p"), Just("B")], gentle in flag(",gentle"), ecn in flag(",ecn")) {
        prop_assume!(p != "0%" && weight != "0%");
        let max = min + more;
        same::<QueueConfig>(&format!("red:limit={limit}{unit},min={min}{unit},max={max}{unit},p={p},weight={weight}{gentle}{ecn}"))?;
    }

    #[test]
    fn parsing_garbage_causes_no_panic(text in ".*", name in "(red|codel|fq_codel|pie|droptail|gilbert|trace|)", rest in "[:,=0-9a-z%.]{0,30}") {
        for text in [text, format!("{name}:{rest}")] {
            let _ = text.parse::<Loss>();
            let _ = text.parse::<Jitter>();
            let _ = text.parse::<Reorder>();
            let _ = text.parse::<Capacity>();
            let _ = text.parse::<Overhead>();
            let _ = text.parse::<QueueConfig>();
            let _ = link::Trace::parse(&text);
            let _ = link::LossTrace::parse(&text);
        }
    }
}

#[test]
fn a_name_alone_is_a_queue_with_its_defaults() {
    for (text, printed) in [
        ("droptail", "droptail:10000p"),
        ("headdrop:256KiB", "headdrop:256KiB"),
        ("red", "red:limit=1000p,min=83p,max=250p,p=10%,weight=0.2%"),
        ("red:120KB,ecn", "red:limit=120KB,min=10KB,max=30KB,p=10%,weight=0.2%,ecn"),
        ("codel", "codel:limit=1000p,target=5ms,interval=100ms"),
        (
            "fq_codel:ecn",
            "fq_codel:limit=10240p,target=5ms,interval=100ms,flows=1024,quantum=1514B,ecn",
        ),
        ("pie", "pie:limit=1000p,target=15ms,update=15ms,burst=150ms"),
        (
            "caqm:143KB",
            "caqm:target=143KB,limit=10000p,lambda=50%,p=25%,beta=512B,unit=8B,tpid=0x88a8",
        ),
    ] {
        assert_eq!(text.parse::<QueueConfig>().unwrap().to_string(), printed);
    }
}

#[test]
fn an_invalid_queue_is_refused_with_the_valid_form() {
    let message = |text: &str| text.parse::<QueueConfig>().unwrap_err().to_string();
    for (text, expected) in [
        ("dropptail:10p", "did you mean `droptail`?"),
        ("fqcodel", "did you mean `fq_codel`?"),
        ("256KiB", "write `droptail:256KiB`"),
        ("droptail:0p", "is 0"),
        ("droptail:0", "is 0"),
        ("droptail:100", "`100p` for packets"),
        ("droptail:10x", "`x` in `10x` is not a unit of a size"),
        ("droptail:-5p", "bytes such as `256KiB`, or packets"),
        ("codel:targte=5ms", "did you mean `target`?"),
        ("codel:target=5", "has no unit"),
        ("codel:interval=0", "above 0"),
        ("codel:target=5s", "longer than its interval"),
        ("red:min=5p,max=3p", "0 < min < max <= limit"),
        ("red:limit=10KB,min=5p", "mixes bytes and packets"),
        ("red:p=0", "above 0"),
        ("red:p=140%", "from 0% to 100%"),
        ("pie:update=0", "above 0"),
        ("fq_codel:flows=0", "from 1 to 65536"),
        ("fq_codel:flows=many", "not `many`"),
        ("fq_codel:quantum=1B", "from 64B"),
    ] {
        assert!(message(text).contains(expected), "{text}: {}", message(text));
    }
}

#[test]
fn an_invalid_delay_is_refused_with_the_valid_form() {
    let jitter = |text: &str| text.parse::<Jitter>().unwrap_err().to_string();
    assert!(jitter("1ms,nromal").contains("did you mean `normal`?"));
    assert!(jitter("1").contains("has no unit"));
    assert!(jitter("").contains("`1ms,normal`"));
    assert!(jitter("2h").contains("too long"));
    let reorder = |text: &str| text.parse::<Reorder>().unwrap_err().to_string();
    assert!(reorder("1%").contains("give a delay"));
    assert!(reorder("1%,0").contains("give a delay"));
    assert!(reorder("nothing").contains("such as `1%,5ms`"));
}

#[test]
fn a_link_is_serialised_as_one_document() {
    let text = r#"{
        "rate": "100mbit", "delay": "20ms", "jitter": "1ms,normal", "loss": "1%",
        "reorder": "1%,5ms", "duplicate": "0.1%", "queue": "codel:limit=256KiB,ecn",
        "overhead": "ethernet", "seed": 7
    }"#;
    let config: LinkConfig = serde_json::from_str(text).unwrap();
    assert_eq!(config.queue.to_string(), "codel:limit=256KiB,target=5ms,interval=100ms,ecn");
    let again = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<LinkConfig>(&again).unwrap(), config);
    let unknown = serde_json::from_str::<LinkConfig>(r#"{"latency": "20ms"}"#);
    assert!(unknown.unwrap_err().to_string().contains("unknown field `latency`"));
    assert_eq!(serde_json::from_str::<LinkConfig>("{}").unwrap(), LinkConfig::default());
}
