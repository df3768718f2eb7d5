/* SPDX-License-Identifier: MIT */
/* fed.h - what fed's commands share: terms from the command line.
 *
 * Flags are those of the command, those of the terms (fed_flags), and settings of training that local training has,
 * too: --batch, --epochs, --lr and so on. A model's options are flags as for train.
 */
#ifndef CLI_FED_H
#define CLI_FED_H

#include "cli/cli.h"
#include "fed/terms.h"

enum { CLI_TERMS_FLAGS = 128 };

struct cli_terms {
    struct settings settings; /* data, limit, threads, out, options of the model */
    struct fed_terms terms;   /* without federation and graph */
    /* Private: the tables that cli_parse walks. */
    struct flag flags[CLI_TERMS_FLAGS];
    const char *text[CLI_TERMS_FLAGS];
    bool is_set[CLI_TERMS_FLAGS];
    int64_t usual_batch; /* that of the settings before they are read */
};

void cli_terms_init(struct cli_terms *terms);
/* Likewise, but flags that are not given stay as a federation has them, not as is usual. */
void cli_terms_init_from(struct cli_terms *terms, const struct fed_terms *from);
void cli_terms_release(struct cli_terms *terms);
/* Reads the command line into settings and terms. own: the command's flags, ended by a NULL name; writes_run: it
 * has those of a run's folder, too. words[0], if there is
 * one, is the model. STATUS_USAGE as cli_parse has it; that terms make sense together is checked later, when it is
 * known what they are for (fed_terms_check). */
MUST_CHECK enum status cli_terms_parse(struct cli_terms *terms, const struct args *args,
                                       const struct flag *own, bool writes_run,
                                       const char **words, int max_words, int *n_words);
/* Help of the terms' flags and of the settings. */
void cli_terms_help(bool writes_run);

#endif /* CLI_FED_H */
