/// Parses CPUs as people write them, `1,2` or `1-3`; the result is sorted and has no repeats.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let wrong = || format!("CPUs {text:?}: write numbers and ranges, for example 1,2 or 0-3");
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if last < first || last >= MOST_CPUS {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Maximum number of CPUs that Linux supports.
const MOST_CPUS: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_list_parses_from_numbers_and_ranges() {
        assert_eq!(parse_cpus("3,0-1").unwrap(), [0, 1, 3]);
        assert_eq!(parse_cpus("1, 1-2").unwrap(), [1, 2]);
        for wrong in ["", "x", "2-1", "1,,2", "0-9999", "-1", "18446744073709551616"] {
            assert!(parse_cpus(wrong).unwrap_err().contains("for example"), "{wrong}");
        }
    }
}
