/* SPDX-License-Identifier: MIT */
/* checkpoint_testing.h - generations of a small model, whose numbers follow from the step, and system calls that fail, for
 * tests of checkpoints.
 */
#ifndef TRAIN_CHECKPOINT_TESTING_H
#define TRAIN_CHECKPOINT_TESTING_H

#include "train/checkpoint.h"

struct strbuf;

enum save_call { CALL_WRITE, CALL_FSYNC, CALL_RENAME, CALL_MKDIR, CALL_COUNT };

struct save_fault {
    enum save_call call;
    int after;          /* how many calls work before the one that fails; < 0: all work */
    int error;          /* its errno */
    bool writes_halves; /* every write takes half of what it is given */
    bool removes_nothing;
};
extern struct save_fault save_fault; /* at first all calls work */

extern struct strbuf *save_events; /* where syncs and renames are noted, if not NULL */

const char *run_folder(void); /* of this test's checkpoint */
/* The path of a generation, or of a file in it; valid until the next call. */
const char *generation_path(const char *folder, uint64_t step, const char *name);

MUST_CHECK enum status generation_save(const char *folder, uint64_t step, int keep);
MUST_CHECK enum status generation_save_with(const char *folder, uint64_t step, int keep,
                                            const char *state);
bool generation_holds(const struct safetensors *file, const char *name, uint64_t step,
                      float sign);
/* Fails the test if it is not what was saved. */
void generation_check(const struct checkpoint *checkpoint);
void generation_check_loads(const char *folder, uint64_t step);
/* Loads with standard error in a file, and gives what was written there. */
MUST_CHECK enum status generation_load_and_listen(const char *folder, struct checkpoint **out,
                                                  char **out_said);
/* The same for those who do not care what is said. */
MUST_CHECK enum status generation_load_quietly(const char *folder, struct checkpoint **out);

/* How many names in the folder hold `part`. */
int folder_count(const char *folder, const char *part);
/* Writes over what is there. */
void put_file(const char *path, const void *bytes, size_t length);
void put_text(const char *path, const char *text);

#endif /* TRAIN_CHECKPOINT_TESTING_H */
