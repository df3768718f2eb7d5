/* SPDX-License-Identifier: MIT */
/* table.c - the data sets that have a name, and the formats that are read.
 *
 * The checksums of Fashion-MNIST are those of the files that its authors publish (their README
 * gives the MD5). Debian's package has the same data packed without time stamp and name. IMDB's reviews and
 * WikiText-2 are published in other shapes than the files read here, so they have no source.
 */
#include "data/cifar.h"
#include "data/fetch.h"
#include "data/idx_folder.h"
#include "data/image_folder.h"
#include "data/npy_folder.h"
#include "data/table_format.h"
#include "data/text_format.h"

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

static const char *const CIFAR_10_CLASSES[] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
};

static const struct dataset_source CIFAR_10_SOURCE = {
    .address = "https://www.cs.toronto.edu/~kriz/",
    .files = {
        { "cifar-10-binary.tar.gz", 170052171,
          "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd" },
    },
};

static const struct dataset_info CIFAR_10 = {
    .name = "cifar-10",
    .other_names = { "cifar10", "cifar-10-batches-bin" },
    .title = "CIFAR-10: 32x32 colour images of animals and vehicles",
    .format = "cifar-10",
    .train_count = 50000,
    .test_count = 10000,
    .sample = { 3, { 3, 32, 32 } },
    .classes = 10,
    .class_names = CIFAR_10_CLASSES,
    .mean = { 0.4914f, 0.4822f, 0.4465f },
    .deviation = { 0.2470f, 0.2435f, 0.2616f },
    .source = &CIFAR_10_SOURCE,
};

static const char *const CIFAR_100_CLASSES[] = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm"
};

static const struct dataset_source CIFAR_100_SOURCE = {
    .address = "https://www.cs.toronto.edu/~kriz/",
    .files = {
        { "cifar-100-binary.tar.gz", 168513733,
          "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec" },
    },
};

static const struct dataset_info CIFAR_100 = {
    .name = "cifar-100",
    .other_names = { "cifar100", "cifar-100-binary" },
    .title = "CIFAR-100: 32x32 colour images of a hundred things",
    .format = "cifar-100",
    .train_count = 50000,
    .test_count = 10000,
    .sample = { 3, { 3, 32, 32 } },
    .classes = 100,
    .class_names = CIFAR_100_CLASSES,
    .mean = { 0.5071f, 0.4865f, 0.4409f },
    .deviation = { 0.2673f, 0.2564f, 0.2762f },
    .source = &CIFAR_100_SOURCE,
};

static const char *const PNEUMONIA_CLASSES[] = { "normal", "pneumonia" };

static const struct dataset_info PNEUMONIA_MNIST = {
    .name = "pneumoniamnist",
    .other_names = { "medmnist" },
    .title = "PneumoniaMNIST: 28x28 grey X-ray images of chests, of MedMNIST",
    .format = "idx",
    .train_count = 4708,
    .test_count = 624,
    .sample = { 3, { 1, 28, 28 } },
    .classes = 2,
    .class_names = PNEUMONIA_CLASSES,
    .mean = { 0.5719f },
    .deviation = { 0.1684f },
    .origin =
        "take pneumoniamnist.npz from https://medmnist.com and save its arrays as x_train.npy, "
        "y_train.npy, x_test.npy and y_test.npy",
};

static const char *const REVIEW_CLASSES[] = { "negative", "positive" };

static const struct dataset_info IMDB = {
    .name = "imdb",
    .title = "IMDB: film reviews, half of them good (Maas et al. 2011)",
    .format = "tsv",
    .train_count = 25000,
    .test_count = 25000,
    .classes = 2,
    .class_names = REVIEW_CLASSES,
    .origin = "take the reviews from https://ai.stanford.edu/~amaas/data/sentiment/ and make "
              "train.tsv and test.tsv, a line each: 0 or 1 (good), a tab, the text",
};

static const struct dataset_source MULTI30K_SOURCE = {
    .address = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/",
    .files = {
        { "train.de.gz", 637044,
          "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6" },
        { "train.en.gz", 568929,
          "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f" },
        { "val.de.gz", 24681,
          "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a" },
        { "val.en.gz", 21650,
          "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28" },
        { "test_2016_flickr.de.gz", 22890,
          "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8" },
        { "test_2016_flickr.en.gz", 21077,
          "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9" },
    },
};

static const struct dataset_info MULTI30K = {
    .name = "multi30k",
    .title = "Multi30k: German captions of photographs and their English translations",
    .format = "parallel",
    .train_count = 29000,
    .test_count = 1000,
    .source = &MULTI30K_SOURCE,
};

static const struct dataset_source SHAKESPEARE_SOURCE = {
    .address = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",
    .files = {
        { "input.txt", 1115394,
          "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" },
    },
};

static const struct dataset_info SHAKESPEARE = {
    .name = "shakespeare",
    .title = "Shakespeare's plays, a million characters",
    .format = "plain",
    .tokenizer = "characters",
    .source = &SHAKESPEARE_SOURCE,
};

static const struct dataset_info WIKITEXT_2 = {
    .name = "wikitext2",
    .other_names = { "wikitext-2" },
    .title = "WikiText-2: articles of Wikipedia, two million words",
    .format = "plain",
    .tokenizer = "words",
    .origin =
        "take wikitext-2-v1.zip from a mirror; it has wiki.train.tokens, wiki.valid.tokens "
        "and wiki.test.tokens",
};

static const struct dataset_source GPT2_BPE_SOURCE = {
    .address = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/",
    .files = {
        { "encoder.json", 1042301,
          "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783" },
        { "vocab.bpe", 456318,
          "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5" },
    },
};

static const struct dataset_info GPT2_BPE = {
    .name = "gpt2-bpe",
    .title = "GPT-2's byte pairs: the vocabulary of --tokenizer gpt2",
    .format = "bpe",
    .source = &GPT2_BPE_SOURCE,
};

const struct dataset_info *const dataset_table[] = {
    &FASHION_MNIST,
    &MNIST,
    &CIFAR_10,
    &CIFAR_100,
    &PNEUMONIA_MNIST,
    &IMDB,
    &MULTI30K,
    &SHAKESPEARE,
    &WIKITEXT_2,
    &GPT2_BPE,
    &table_heart_disease,
    &table_breast_cancer,
    &table_a9a,
    NULL,
};

/* The first that knows a folder's files is taken; any one file is plain text. */
const struct format *const format_table[] = {
    &format_idx, &format_cifar_10, &format_cifar_100, &format_npy,
    &format_csv, &format_libsvm,   &format_images,    &format_bpe,
    &format_tsv, &format_parallel, &format_plain,     NULL,
};

static bool is_called(const struct dataset_info *info, const char *name)
{
    if (strcmp(info->name, name) == 0)
        return true;
    for (int i = 0; info->other_names[i]; i++)
        if (strcmp(info->other_names[i], name) == 0)
            return true;
    return false;
}

bool dataset_is_path(const char *name)
{
    return strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const struct dataset_info *dataset_find(const char *name)
{
    for (size_t i = 0; dataset_table[i]; i++)
        if (is_called(dataset_table[i], name))
            return dataset_table[i];
    return NULL;
}
