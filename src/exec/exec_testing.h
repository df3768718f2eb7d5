/* SPDX-License-Identifier: MIT */
/* exec_testing.h - what tests of executors have in common: the CPU as a device, images, late results, a rank that dies. */
#ifndef EXEC_EXEC_TESTING_H
#define EXEC_EXEC_TESTING_H

#include "data/dataset.h"
#include "exec/exec.h"

/* The CPU as a device, in f32. Close it by its face. */
void exec_testing_open_cpu(struct exec_device *out);

/* So many images of side x side that are made up, in the test's folder. */
struct dataset *exec_testing_samples(uint64_t seed, int64_t count, int64_t side, int classes);

/* Results of steps that a device was still at, in their order from *next on: those that are there, or all. */
MUST_CHECK enum status exec_testing_take_late(struct exec *exec, bool all, int *next,
                                              struct exec_result *steps);

/* For exec_config.at_meeting: the process is killed in a step. arg: int, which step that is, from 1 on; it is counted down. */
void exec_testing_die_at(void *arg, const char *point);

#endif /* EXEC_EXEC_TESTING_H */
