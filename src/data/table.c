/* SPDX-License-Identifier: MIT */
/* table.c - the data sets that have a name, and the formats that are read.
 *
 * The checksums of Fashion-MNIST are those of the files that its authors publish (their README
 * gives the MD5). Debian's package has the same data packed without time stamp and name.
 */
#include "base/file.h"
#include "data/fetch.h"
#include "data/idx_folder.h"

#include <string.h>

static const char *const FASHION_CLASSES[] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot",
};

static const struct dataset_source FASHION_SOURCE = {
    .address = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    .files = {
        { "train-images-idx3-ubyte.gz", 26421880,
          "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84" },
        { "train-labels-idx1-ubyte.gz", 29515,
          "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845" },
        { "t10k-images-idx3-ubyte.gz", 4422102,
          "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073" },
        { "t10k-labels-idx1-ubyte.gz", 5148,
          "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5" },
    },
};

static const struct dataset_info FASHION_MNIST = {
    .name = "fashion-mnist",
    .title = "Fashion-MNIST: 28x28 grey images of clothes",
    .format = "idx",
    .train_count = 60000,
    .test_count = 10000,
    .sample = { 3, { 1, 28, 28 } },
    .classes = 10,
    .class_names = FASHION_CLASSES,
    .mean = { 0.2860f },
    .deviation = { 0.3530f },
    .package = "dataset-fashion-mnist",
    .source = &FASHION_SOURCE,
};

static const char *const DIGITS[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };

static const struct dataset_source MNIST_SOURCE = {
    .address = "https://ossci-datasets.s3.amazonaws.com/mnist/",
    .files = {
        { "train-images-idx3-ubyte.gz", 9912422,
          "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609" },
        { "train-labels-idx1-ubyte.gz", 28881,
          "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c" },
        { "t10k-images-idx3-ubyte.gz", 1648877,
          "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6" },
        { "t10k-labels-idx1-ubyte.gz", 4542,
          "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6" },
    },
};

static const struct dataset_info MNIST = {
    .name = "mnist",
    .title = "MNIST: 28x28 grey images of handwritten digits",
    .format = "idx",
    .train_count = 60000,
    .test_count = 10000,
    .sample = { 3, { 1, 28, 28 } },
    .classes = 10,
    .class_names = DIGITS,
    .mean = { 0.1307f },
    .deviation = { 0.3081f },
    .source = &MNIST_SOURCE,
};

const struct dataset_info *const dataset_table[] = { &FASHION_MNIST, &MNIST, NULL };

const struct format *const format_table[] = { &format_idx, NULL };

const struct dataset_info *dataset_find(const char *name)
{
    for (size_t i = 0; dataset_table[i]; i++)
        if (strcmp(dataset_table[i]->name, name) == 0)
            return dataset_table[i];
    return NULL;
}

const struct format *format_of_folder(const char *folder)
{
    for (size_t i = 0; format_table[i]; i++)
        if (format_table[i]->probe(folder))
            return format_table[i];
    return NULL;
}

enum status format_detect(const char *folder, const struct format **out)
{
    const struct format *format = format_of_folder(folder);

    if (!file_is_folder(folder))
        return FAIL(STATUS_NOT_FOUND, "%s: no such folder", folder);
    if (!format)
        return FAIL(STATUS_NOT_FOUND,
                    "%s: no data set there; IDX files are called train-images-idx3-ubyte[.gz], "
                    "train-labels-idx1-ubyte[.gz], t10k-...",
                    folder);
    *out = format;
    return STATUS_OK;
}
