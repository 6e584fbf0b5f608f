# Sourced by scripts/test: what tests may leave behind on a machine, listed before and after.
# Others may work on the machine meanwhile, so processes and files are told by a mark: every process that
# the tests start inherits WEIR_TESTS in its environment and a TMPDIR of its own. A namespace without a
# name lives no longer than the processes in it.

export WEIR_TESTS="$$-${RANDOM}"

# The machine's state outside that folder, one thing a line.
machine_state() {
  [ ! -d /run/netns ] || find /run/netns -mindepth 1 -printf 'namespace %f\n'
  local interface
  for interface in /sys/class/net/*; do echo "interface ${interface##*/}"; done
  find /tmp /run -maxdepth 1 -name 'weir*' -printf 'file %p\n'
  find /sys/fs/cgroup -type d -name 'weir*' -printf 'control group %p\n' 2>/dev/null || true
}

# Processes that bear the mark, but for this script's own.
marked_processes() {
  local environ pid
  for environ in /proc/[0-9]*/environ; do
    pid=${environ#/proc/}
    pid=${pid%/environ}
    [ "$pid" != "$$" ] && [ "$pid" != "$BASHPID" ] || continue
    { tr '\0' '\n' <"$environ"; } 2>/dev/null | grep -qx "WEIR_TESTS=$WEIR_TESTS" || continue
    # The commands of this loop bear the mark too and are gone by now.
    [ ! -e "/proc/$pid/comm" ] || echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done 2>/dev/null
}
