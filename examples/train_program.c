/* SPDX-License-Identifier: MIT */
/* train_program.c - training inside a program of one's own, with libtutti.
 *
 *   cc train_program.c $(pkg-config --cflags --libs tutti) -o train_program
 *   ./train_program OUT_FOLDER [SAMPLES]
 */
#include <stdio.h>
#include <tutti.h>

static struct tutti_value *perceptron(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    x = tutti_relu(g, "relu1", tutti_linear(g, "fc1", x, 128));
    return tutti_linear(g, "fc2", x, classes);
}

static int set_all(struct tutti_settings *settings, const char *out, const char *samples)
{
    const char *const pairs[][2] = {
        { "data", "fashion-mnist" },
        { "strategy", "mirrored" },
        { "ranks", "2" },
        { "threads", "1" },
        { "epochs", "2" },
        { "optimizer", "adamw" },
        { "out", out },
        { "limit", samples },
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (tutti_settings_set(settings, pairs[i][0], pairs[i][1]) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct tutti_settings *settings;
    struct tutti_result result;

    if (argc < 2) {
        fputs("usage: train_program OUT_FOLDER [SAMPLES]\n", stderr);
        return 2;
    }
    if (tutti_settings_create(&settings) != 0 ||
        set_all(settings, argv[1], argc > 2 ? argv[2] : "0") != 0 ||
        tutti_train(settings, perceptron, &result) != 0) {
        fprintf(stderr, "train_program: %s\n", tutti_error());
        return 1;
    }
    tutti_settings_destroy(settings);
    printf("validation accuracy %.2f%% after %lld steps, weights %.12s\n",
           100 * result.val_accuracy, (long long)result.steps, result.weights_sha256);
    return 0;
}
