# Sourced by scripts/test: reads the output of test programs from the file in the variable `log` of scripts/test.

# Fails if each measurement of a kind was invalid: the tests of this kind have tested nothing.
judged() {
  awk '/^JUDGED / {sub(/^JUDGED /, ""); yes[$0] = 1}
       /^NOT JUDGED / {sub(/^NOT JUDGED /, ""); sub(/:.*/, ""); no[$0] = 1}
       END {for (kind in no) if (!(kind in yes)) {print "no valid measurement of this kind: " kind; bad = 1}
            if (!bad) print "each kind of measurement was judged at least once"
            exit bad}' "$log"
}

# Prints the skipped tests and the skipped parts of tests, with their reasons.
left_out() {
  awk '/^---- .* stdout ----$/ || /^test .* \.\.\.$/ {test = $2 ": "} /^test result:/ {test = ""}
       /^SKIPPED/ {sub(/^SKIPPED:? */, ""); print "left out       " (test == "" ? "" : "in test " test) $0}' "$log" | sort -u
}

# Prints the numbers of tests. A test program that crashed reported no result: it counts as one failure. A test that prints
# SKIPPED passed for cargo, and counts as skipped here.
count_tests() {
  awk '/^test result:/ {passed += $4; failed += $6; ignored += $8; test = ""} /exit successfully:.*\(signal/ {failed++}
       /^---- .* stdout ----$/ || /^test .* \.\.\.$/ {test = $2}
       /^SKIPPED: / && test != "" {passed--; ignored++; test = ""}
       END {printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored}' "$log"
}
