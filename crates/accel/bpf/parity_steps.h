/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs a core in BPF for a test: one run of the program takes all steps in the map. The file that
 * includes this header defines a step (PARITY_STEP) and the function that takes a step
 * (PARITY_TAKE). */
#ifndef WEIR_ACCEL_PARITY_STEPS_H
#define WEIR_ACCEL_PARITY_STEPS_H

#define PARITY_BATCH 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PARITY_BATCH);
	__type(key, u32);
	__type(value, PARITY_STEP);
} steps SEC(".maps");

struct parity_order {
	u32 count;
	u32 taken;
};

static long take(u64 index, struct parity_order *order)
{
	u32 key = index;
	PARITY_STEP *step = bpf_map_lookup_elem(&steps, &key);

	if (!step)
		return 1;
	PARITY_TAKE(step);
	order->taken++;
	return 0;
}

SEC("syscall")
int parity(struct parity_order *order)
{
	struct parity_order mine = { .count = order->count };

	bpf_loop(mine.count, take, &mine, 0);
	order->taken = mine.taken;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

#endif
