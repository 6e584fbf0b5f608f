/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps that the programs share with each other and with `weir accel`. */
#ifndef WEIR_ACCEL_MAPS_H
#define WEIR_ACCEL_MAPS_H

#include "kernel.h"
#include "flow.h"

/* The core's state of each socket, which does not fit in the 104 bytes of ca_priv. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* Tunables: at [0] for sockets that chose the algorithm themselves, at the other indexes for the
 * policy's rules. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * ACCEL_RULES + 1);
	__type(key, u32);
	__type(value, struct tunables);
} settings SEC(".maps");

/* The memory of paths; the kernel evicts the least recently used entry. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct place);
	__type(value, struct memory);
} paths SEC(".maps");

/* The work of connections that have ended, on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct work);
} ended SEC(".maps");

#endif
