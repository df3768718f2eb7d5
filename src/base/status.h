/* SPDX-License-Identifier: MIT */
/* status.h - how failure travels.
 *
 * Whatever can fail returns enum status. The function that first decides which
 * error it is calls FAIL, which keeps one line of text for this thread; callers
 * pass the code on with TRY. Only cli/ prints the text or exits.
 *
 * Threads: the text belongs to the thread. Copy it with status_message into
 *          whatever carries the status to another thread and set it there with
 *          status_set.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* Sorted by what the caller can do about it. */
enum status {
    STATUS_OK = 0,
    STATUS_PENDING = 1,      /* not finished: ask again */
    STATUS_USAGE = -1,       /* the request is wrong: change the flags (exit 2) */
    STATUS_NOT_FOUND = -2,   /* a named thing is absent */
    STATUS_CORRUPT = -3,     /* contents are not what the format says */
    STATUS_IO = -4,          /* the system refused to read or write */
    STATUS_NO_MEMORY = -5,   /* an allocation failed */
    STATUS_PEER_LOST = -6,   /* another rank died, is stuck or was aborted (exit 3) */
    STATUS_MISMATCH = -7,    /* ranks, files or graphs disagree */
    STATUS_STOPPED = -8,     /* the user asked to stop (exit 130) */
    STATUS_UNSUPPORTED = -9, /* legal, but not in this build or on this machine */
    STATUS_PREEMPTED = -10,  /* SIGTERM or SIGHUP ended it: the same again goes on (exit 3) */
};

/* Records the text (one line, lower case, exact cause, remedy if known); returns `status`. */
enum status status_fail(enum status status, const char *file, int line, const char *format, ...)
    PRINTF_LIKE(4, 5);

/* Text of this thread's last failure; "" if there was none. Valid until the next failure. */
const char *status_message(void);
/* Where that failure arose, as "file:line"; for debug output. */
const char *status_origin(void);
/* Takes over a failure that arrived from another thread or rank. */
enum status status_set(enum status status, const char *text);
const char *status_name(enum status status);

/* The comma shows compilers that the result is `status`, so never STATUS_OK by accident. */
#define FAIL(status, ...) (status_fail((status), __FILE__, __LINE__, __VA_ARGS__), (status))

#define TRY(call)                                                                              \
    do {                                                                                       \
        enum status try_status_ = (call);                                                      \
        if (try_status_ != STATUS_OK)                                                          \
            return try_status_;                                                                \
    } while (0)

/* A broken invariant of ours: prints and aborts. Never for input, files, peers or memory. */
#define BUG_ON(condition)                                                                      \
    do {                                                                                       \
        if (__builtin_expect(!!(condition), 0))                                                \
            status_bug(__FILE__, __LINE__, #condition);                                        \
    } while (0)

__attribute__((noreturn)) void status_bug(const char *file, int line, const char *condition);

#ifdef __cplusplus
}
#endif

#endif /* BASE_STATUS_H */
