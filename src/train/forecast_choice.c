/* SPDX-License-Identifier: MIT */
/* forecast_choice.c - picks one of a forecast's rows and says why.
 *
 * What is close by its prediction is tried: a second of steps on ranks as the job would have them. Then the shortest step
 * decides, not the shortest prediction. A clear case, long steps and machines that are not here are left to
 * predictions.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/on_device.h"
#include "train/planner.h"

enum { MOST_TRIED = 6, WINDOWS = 3 };
static const double SAME = 0.05; /* what differs by less is the same: measurements do, too */
static const double CLEARLY =
    0.1; /* by how much a grid that was not tried has to be faster than what is no grid */
static const double CLOSE =
    0.4; /* predictions are not better than that where steps are short */
static const double TINY = 5e-3, CLOSE_TO_TINY = 2; /* and worse than twice off below this */
static const double SHORT = 0.2;                    /* seconds of a step that is tried */

bool planner_can_choose(const struct forecast_row *row)
{
    return row->is_legal && row->runs && row->is_exact && row->fits;
}

const char *forecast_name(const struct forecast_row *row, char text[128])
{
    snprintf(text, 128, "%s%s%s%s%s", row->strategy, *row->split ? " " : "", row->split,
             *row->pipeline ? " " : "", row->pipeline);
    return text;
}

/* As it was measured, else as it is predicted. */
static double seconds_of(const struct forecast_row *row)
{
    return row->tried > 0 ? row->tried : row->cost.seconds;
}

int planner_fastest(const struct forecast *plan, bool (*is_so)(const struct forecast_row *row))
{
    int best = -1;

    for (int i = 0; i < plan->n_rows; i++) {
        if (is_so(&plan->rows[i]) &&
            (best < 0 || seconds_of(&plan->rows[i]) < seconds_of(&plan->rows[best])))
            best = i;
    }
    return best;
}

static bool is_too_large(const struct forecast_row *row)
{
    return row->is_legal && row->is_exact && row->runs && !row->fits;
}

static bool is_not_exact(const struct forecast_row *row)
{
    return row->is_legal && row->runs && row->fits && !row->is_exact;
}

static bool is_not_here(const struct forecast_row *row)
{
    return row->is_legal && row->is_exact && row->fits && !row->runs;
}

/* "12.3 ms", "1.4 s": returns `text`. */
static const char *seconds_text(double seconds, char text[32])
{
    snprintf(text, 32, seconds < 1 ? "%.3g ms" : "%.3g s", seconds * (seconds < 1 ? 1e3 : 1));
    return text;
}

/* Who would be faster than the chosen one, and why it is not chosen. */
static int add_faster(const struct forecast *plan, int at,
                      bool (*is_so)(const struct forecast_row *row), char *text, int room)
{
    const int row = planner_fastest(plan, is_so);
    char name[128], time[32];

    if (row < 0 ||
        (plan->chosen >= 0 &&
         seconds_of(&plan->rows[row]) > (1 - SAME) * seconds_of(&plan->rows[plan->chosen])))
        return at;
    const int more =
        snprintf(text + at, (size_t)(room - at), "; %s would take %s, but %s",
                 forecast_name(&plan->rows[row], name),
                 seconds_text(seconds_of(&plan->rows[row]), time), plan->rows[row].why);
    return at + more < room ? at + more : room - 1;
}

static void explain(struct forecast *plan)
{
    const int room = (int)sizeof plan->why;
    int at, count = 0, tried = 0;
    char name[128], time[32];

    for (int i = 0; i < plan->n_rows; i++) {
        count += planner_can_choose(&plan->rows[i]);
        tried += plan->rows[i].tried > 0;
    }
    if (plan->chosen < 0) {
        at = snprintf(plan->why, sizeof plan->why,
                      "nothing whose workers are in step can run on %d ranks", plan->ranks);
    } else {
        const struct forecast_row *row = &plan->rows[plan->chosen];
        seconds_text(seconds_of(row), time);
        if (count == 1)
            at = snprintf(plan->why, sizeof plan->why, "%s: %s a step; there is no other way",
                          forecast_name(row, name), time);
        else
            at = snprintf(plan->why, sizeof plan->why,
                          "%s: %s a step is the least of %d ways that run, fit and keep "
                          "workers in step, or as good and simpler%s",
                          forecast_name(row, name), time, count,
                          tried ? "; the first of them were tried" : "");
    }
    at = add_faster(plan, at, is_too_large, plan->why, room);
    at = add_faster(plan, at, is_not_exact, plan->why, room);
    add_faster(plan, at, is_not_here, plan->why, room);
}

/* Trials ---------------------------------------------------------------------------------- */

/* Steps at servers are not what train_bench measures. */
static bool can_be_tried(const struct forecast_row *row)
{
    return planner_can_choose(row) && row->choice.servers == 0;
}

/* Ways that are the same program here have one prediction. */
static bool is_like(const struct forecast_row *a, const struct forecast_row *b)
{
    return planner_is_grid(a) == planner_is_grid(b) && a->cost.seconds == b->cost.seconds &&
           a->shards == b->shards;
}

/* Of those that are slower than `than` by their prediction the fastest that is close to `best`; -1: none. */
static int next_close(const struct forecast *plan, double than, double best)
{
    const double most = best * (1 + (best < TINY ? CLOSE_TO_TINY : CLOSE));
    int next = -1;

    for (int i = 0; i < plan->n_rows; i++) {
        const struct forecast_row *row = &plan->rows[i];
        const double seconds = row->cost.seconds;
        if (can_be_tried(row) && seconds > than && seconds <= most &&
            (next < 0 || seconds < plan->rows[next].cost.seconds))
            next = i;
    }
    return next;
}

/* Steps of a row on ranks of this machine. What cannot be run after all is none. */
static void try_row(struct planner *p, int i)
{
    struct forecast_row *row = &p->plan->rows[i];
    struct bench_result result;
    struct settings settings;
    struct job *job = NULL;

    enum status status = planner_settings(p, row, &settings);
    settings.trace = false;
    *settings.trace_steps = '\0';
    if (status == STATUS_OK)
        status = job_vary(p->job, &settings, &job);
    if (status == STATUS_OK)
        status = train_bench(job, WINDOWS, &result);
    job_destroy(job);
    for (int n = 0; n < p->plan->n_rows; n++) {
        struct forecast_row *other = &p->plan->rows[n];
        if (n != i && !(can_be_tried(other) && is_like(other, row)))
            continue;
        if (status == STATUS_OK)
            other->tried = 1e-3 * result.step_ms;
        else
            planner_refuse(other, &other->runs, status_message());
    }
}

static void try_rows(struct planner *p)
{
    const struct forecast *plan = p->plan;
    const int first = planner_fastest(plan, can_be_tried);

    if (first < 0 || plan->rows[first].cost.seconds > SHORT)
        return;
    const double best = plan->rows[first].cost.seconds;
    int next = next_close(plan, best, best);
    if (next < 0) /* clear: nothing else is close */
        return;
    try_row(p, first);
    for (int n = 1; n < MOST_TRIED && next >= 0; n++) {
        try_row(p, next);
        next = next_close(plan, plan->rows[next].cost.seconds, best);
    }
}

/* Trials are of ranks that this program can start as the job would. */
static bool can_try(const struct planner *p)
{
    const struct forecast_options *options = p->options;

    return p->plan->is_measured && !options->guess && !options->machine && !options->nodes &&
           p->plan->ranks > 1 && !on_device(p->job);
}

/* The choice ------------------------------------------------------------------------------ */

static bool is_whole(const struct forecast_row *row)
{
    return planner_can_choose(row) && !planner_is_grid(row);
}

static bool is_tried(const struct forecast_row *row)
{
    return planner_can_choose(row) && row->tried > 0;
}

/* Grids are predicted less surely, so they have to be clearly faster, unless they were seen to be. */
static int best_of(const struct forecast *plan)
{
    const int tried = planner_fastest(plan, is_tried);
    const int whole = planner_fastest(plan, is_whole);
    const int best = planner_fastest(plan, planner_can_choose);

    if (tried >= 0)
        return tried;
    return whole >= 0 && seconds_of(&plan->rows[best]) >
                             (1 - CLEARLY) * seconds_of(&plan->rows[whole])
               ? whole
               : best;
}

void planner_choose(struct planner *p)
{
    struct forecast *plan = p->plan;

    if (can_try(p))
        try_rows(p);
    const int best = best_of(plan);
    plan->chosen = best;
    for (int i = 0; best >= 0 && i < plan->n_rows; i++) {
        const struct forecast_row *row = &plan->rows[i], *fastest = &plan->rows[best];
        if (planner_can_choose(row) && planner_is_grid(row) == planner_is_grid(fastest) &&
            (row->tried > 0) == (fastest->tried > 0) &&
            seconds_of(row) <= (1 + SAME) * seconds_of(fastest)) {
            plan->chosen = i;
            break;
        }
    }
    explain(plan);
}
