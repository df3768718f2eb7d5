/* SPDX-License-Identifier: MIT */
/* fed_flags.h - flags of who announces terms: coordinator and simulate. */
#ifndef CLI_FED_FLAGS_H
#define CLI_FED_FLAGS_H

#include "cli/cli.h"
#include "fed/terms.h"

/* Walks the arguments: the command's own flags, those of the terms (fed_flags), and the settings of training that a
 * participant is told. The one word is the model. Terms were initialized; the settings are made here, with what a federation
 * usually has. The terms are filled and checked, but for federation and graph. */
MUST_CHECK enum status cli_fed_parse(const struct args *args, const struct flag *own,
                                     struct fed_terms *terms, struct settings *settings,
                                     const struct model **out_model);
void cli_fed_help(const struct flag *own);

#endif /* CLI_FED_FLAGS_H */
