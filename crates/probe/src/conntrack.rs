//! Counters of connection tracking: `/proc/net/stat/nf_conntrack`, a line of hexadecimal numbers
//! for each core below a line of names (net/netfilter/nf_conntrack_standalone.c).

use std::collections::BTreeMap;

/// Sums each counter over all cores. `entries` is the size of the whole table, which each line
/// repeats. Counters and their number differ between kernels.
pub fn parse(text: &str) -> BTreeMap<String, u64> {
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        for (name, word) in names.iter().zip(line.split_ascii_whitespace()) {
            let Ok(value) = u64::from_str_radix(word, 16) else { continue };
            let sum = sums.entry((*name).to_owned()).or_default();
            *sum = if *name == "entries" { value } else { sum.saturating_add(value) };
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn conntrack_counters_of_all_cores_are_summed() {
        let text = "entries  clashres found insert_failed drop\n\
                    0000000a 00000000 00000001 00000002 00000010\n\
                    0000000a 00000000 00000001 00000003 00000000\n";
        let sums = parse(text);
        assert_eq!((sums["entries"], sums["insert_failed"], sums["drop"]), (10, 5, 16));
        assert!(parse("").is_empty());
    }

    proptest! {
        #[test]
        fn the_parser_of_conntrack_counters_never_panics(text in "([a-f0-9z ]{0,40}\n){0,4}") {
            let _ = parse(&text);
        }
    }
}
