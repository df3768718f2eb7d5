/* SPDX-License-Identifier: MIT */
/* fuzz_secagg.c - payloads of secure aggregation may be anything: to a participant, to the coordinator, in a saved state; and
 * entries of the privacy ledger; a participant's record of what it spent; a record of cohorts.
 *
 * The first byte picks the parser and, by its highest bit, what the rest is: the payload itself, or changes to the right one,
 * which get past the first checks: two bytes for its new length, then three a change: place, and what is added to the byte there.
 */
#include <string.h>

#include "base/mem.h"
#include "fed/accountant.h"
#include "fed/cohorts.h"
#include "fed/secagg_testing.h"
#include "fed/spending.h"
#include "fuzz.h"

enum { PARTICIPANTS = 3, THRESHOLD = 2, COUNT = 4, MOST = 1 << 16 };
enum { STATE = 2 * SECAGG_STAGES, LEDGER, SPENDING, COHORTS, PARSERS };

/* A round that has come to each stage: its tasks are told, its answers not heard. Used again until a payload is taken. */
static struct secagg_federation rounds[SECAGG_STAGES];
static bool made[SECAGG_STAGES];
static const uint32_t words[COUNT] = { 1, 2, 3, 4 };

static struct secagg_federation *round_at(enum secagg_stage stage)
{
    const void *const vectors[PARTICIPANTS] = { words, words, words };

    if (!made[stage]) {
        BUG_ON(secagg_federation_create(PARTICIPANTS, THRESHOLD, 32, COUNT, 1,
                                        &rounds[stage]) != STATUS_OK);
        for (int i = 0; i < (int)stage; i++)
            BUG_ON(secagg_federation_stage(&rounds[stage], vectors, NULL) != STATUS_OK);
        made[stage] = true;
    }
    return &rounds[stage];
}

static void forget(enum secagg_stage stage)
{
    secagg_federation_destroy(&rounds[stage]);
    made[stage] = false;
}

/* Changes the right payload as the input says. */
static void change(const uint8_t *data, size_t size, struct fed_buffer *payload)
{
    if (size < 2)
        return;
    const size_t length = data[0] | (size_t)data[1] << 8;
    if (length < payload->length)
        payload->length = length;
    else
        fed_put_room(payload, length - payload->length);
    for (size_t i = 2; i + 3 <= size && payload->length > 0; i += 3)
        payload->data[(data[i] | (size_t)data[i + 1] << 8) % payload->length] += data[i + 2];
}

static void check(enum status status)
{
    BUG_ON(status != STATUS_OK && status != STATUS_CORRUPT && status != STATUS_MISMATCH);
    BUG_ON(status != STATUS_OK && !status_message()[0]);
}

static void fuzz_client(enum secagg_stage stage, bool raw, const uint8_t *data, size_t size)
{
    struct secagg_federation *federation = round_at(stage);
    struct fed_buffer task, answer;

    fed_buffer_init(&task, MOST);
    fed_buffer_init(&answer, MOST);
    if (raw) {
        fed_put(&task, data, size);
    } else {
        BUG_ON(secagg_federation_task(federation, 0, &task) != STATUS_OK);
        change(data, size, &task);
    }
    const enum status status =
        secagg_client_answer(federation->clients[0], stage, task.data, task.length,
                             stage == SECAGG_MASKED ? words : NULL, NULL, &answer);
    check(status);
    if (status == STATUS_OK)
        forget(stage);
    fed_buffer_release(&task);
    fed_buffer_release(&answer);
}

static void fuzz_server(enum secagg_stage stage, bool raw, const uint8_t *data, size_t size)
{
    struct secagg_federation *federation = round_at(stage);
    struct fed_buffer task, answer;

    fed_buffer_init(&task, MOST);
    fed_buffer_init(&answer, MOST);
    if (raw) {
        fed_put(&answer, data, size);
    } else {
        BUG_ON(secagg_federation_task(federation, 0, &task) != STATUS_OK);
        BUG_ON(secagg_client_answer(federation->clients[0], stage, task.data, task.length,
                                    stage == SECAGG_MASKED ? words : NULL, NULL,
                                    &answer) != STATUS_OK);
        change(data, size, &answer);
    }
    const enum status status = secagg_server_hear(federation->server, federation->numbers[0],
                                                  stage, answer.data, answer.length);
    check(status);
    if (status == STATUS_OK || !raw)
        forget(stage);
    fed_buffer_release(&task);
    fed_buffer_release(&answer);
}

static void fuzz_state(bool raw, const uint8_t *data, size_t size)
{
    struct secagg_federation *federation = round_at(SECAGG_CONSISTENCY);
    struct secagg_client *client;
    struct fed_buffer state;

    fed_buffer_init(&state, MOST);
    if (raw) {
        fed_put(&state, data, size);
    } else {
        BUG_ON(secagg_client_save(federation->clients[0], &state) != STATUS_OK);
        change(data, size, &state);
    }
    const enum status status =
        secagg_client_load(&federation->config, &federation->identities[0], &federation->trust,
                           state.data, state.length, &client);
    check(status);
    if (status == STATUS_OK)
        secagg_client_destroy(client);
    fed_buffer_release(&state);
}

static void fuzz_ledger(const uint8_t *data, size_t size)
{
    struct ledger_entry entry, again;
    struct strbuf text;

    if (ledger_entry_read((const char *)data, size, &entry) != STATUS_OK) {
        check(STATUS_CORRUPT);
        return;
    }
    strbuf_init(&text, MOST);
    ledger_entry_write(&entry, &text);
    BUG_ON(ledger_entry_read(text.text, text.length, &again) != STATUS_OK);
    BUG_ON(entry.q != again.q || entry.noise != again.noise || entry.round != again.round);
    strbuf_release(&text);
}

static void fuzz_spending(const uint8_t *data, size_t size)
{
    double epsilon;

    for (int is_record = 0; is_record < 2; is_record++) {
        if (fed_spending_epsilon((const char *)data, size, is_record, 1e-5, &epsilon) ==
            STATUS_OK)
            BUG_ON(!(epsilon >= 0));
    }
}

static void fuzz_cohorts(const uint8_t *data, size_t size)
{
    struct fed_reader reader = fed_reader(data, size);
    uint8_t ids[2][COHORTS_ID] = { { 1 }, { 2 } };
    struct cohorts *cohorts;

    BUG_ON(cohorts_create(&cohorts) != STATUS_OK);
    if (cohorts_read(cohorts, &reader) == STATUS_OK &&
        fed_reader_end(&reader, "cohorts") == STATUS_OK) {
        (void)!cohorts_check(cohorts, 0, ids, 2, 2);
        BUG_ON(cohorts_add(cohorts, 0, ids, 2) != STATUS_OK);
        BUG_ON(cohorts_check(cohorts, 0, ids, 2, 1) != STATUS_OK);
    }
    cohorts_destroy(cohorts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const int parser = (data[0] & 127) % PARSERS;
    const bool raw = data[0] & 128;

    if (parser == LEDGER)
        fuzz_ledger(data + 1, size - 1);
    else if (parser == SPENDING)
        fuzz_spending(data + 1, size - 1);
    else if (parser == COHORTS)
        fuzz_cohorts(data + 1, size - 1);
    else if (parser == STATE)
        fuzz_state(raw, data + 1, size - 1);
    else if (parser < SECAGG_STAGES)
        fuzz_client((enum secagg_stage)parser, raw, data + 1, size - 1);
    else
        fuzz_server((enum secagg_stage)(parser - SECAGG_STAGES), raw, data + 1, size - 1);
    return 0;
}
