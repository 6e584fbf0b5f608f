# Sourced by scripts/test: lists everything that tests may leave behind on a machine, before and
# after. Others may work on the machine meanwhile, so a mark identifies processes and files: every
# process that the tests start inherits WEIR_TESTS in its environment and a private TMPDIR. A
# namespace without a name lives no longer than the processes in it.

export WEIR_TESTS="$$-${RANDOM}"

# The machine's state outside that folder, one object per line.
machine_state() {
  [ ! -d /run/netns ] || find /run/netns -mindepth 1 -printf 'namespace %f\n'
  local interface
  for interface in /sys/class/net/*; do echo "interface ${interface##*/}"; done
  find /tmp /run -maxdepth 1 -name 'weir*' -printf 'file %p\n'
  find /sys/fs/cgroup -type d -name 'weir*' -printf 'control group %p\n' 2>/dev/null || true
}

# Processes with the mark, except this script's own.
marked_processes() {
  local environ pid
  for environ in /proc/[0-9]*/environ; do
    pid=${environ#/proc/}
    pid=${pid%/environ}
    [ "$pid" != "$$" ] && [ "$pid" != "$BASHPID" ] || continue
    { tr '\0' '\n' <"$environ"; } 2>/dev/null | grep -qx "WEIR_TESTS=$WEIR_TESTS" || continue
    # The commands of this loop have the mark too and have ended by now.
    [ ! -e "/proc/$pid/comm" ] || echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done 2>/dev/null
}
