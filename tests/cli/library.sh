#!/usr/bin/env bash
# library.sh - a model file of the user's, and a program that links the installed library. $3: build folder.
. "$(dirname "$0")/lib.sh"
build=$3
need_data fashion-mnist

"$tutti" train "$root/examples/my_model.c" --data fashion-mnist --steps 30 --limit 2000 --quiet --out user || complain "user's model"
grep -q conv2.weight <(strings -n 6 user/checkpoint/step-*/weights.safetensors) || complain "user's model: no conv2.weight"
"$tutti" train "$root/examples/my_model.c" --data fashion-mnist --steps 30 --limit 2000 --quiet -n 2 --threads 1 --out user2 || complain "user's model on two ranks"
"$tutti" eval user >/dev/null || complain "eval of a user's model"
printf '#include <tutti.h>\nint main(void) { return nothing; }\n' >broken.c
"$tutti" train broken.c --out broken >/dev/null 2>err.txt && complain "a broken model file is accepted"
grep -q '^tutti: broken.c does not compile' err.txt || complain "broken model: $(tail -1 err.txt)"

cmake --install "$build" --prefix "$work/prefix" >/dev/null || complain install
export PKG_CONFIG_PATH=$work/$(dirname "$(find prefix -name tutti.pc)")
cc "$root/examples/train_program.c" $(pkg-config --cflags --libs tutti) ${TUTTI_TEST_CFLAGS:-} -o program || complain "linking with the shared library"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") ./program out 4000 >out.txt || complain "the program: $(cat out.txt)"
grep -q 'test accuracy' out.txt || complain "the program says: $(cat out.txt)"
cc "$root/examples/train_program.c" $(pkg-config --cflags tutti) "$(find prefix -name libtutti.a)" \
    $(pkg-config --static --libs-only-l tutti | sed 's/-ltutti//') ${TUTTI_TEST_CFLAGS:-} -o static || complain "linking with the static library"
./static out-static 4000 >out2.txt || complain "the static program"
cmp -s out.txt out2.txt || complain "shared and static libraries train differently"
cat >reconstruct.c <<'C'
#include <math.h>
#include "my_autoencoder.c"
int main(void)
{
    struct tutti_settings *settings;
    struct tutti_result result;
    if (tutti_settings_create(&settings) || tutti_settings_set(settings, "data", "fashion-mnist") ||
        tutti_settings_set(settings, "limit", "1000") || tutti_settings_set(settings, "steps", "20") ||
        tutti_settings_set(settings, "out", "reconstruct") || tutti_train(settings, my_autoencoder, &result))
        return 1;
    tutti_settings_destroy(settings);
    return !(isnan(result.val_accuracy) && isnan(result.train_accuracy) && result.val_loss > 0);
}
C
cc reconstruct.c -I"$root/examples" $(pkg-config --cflags --libs tutti) ${TUTTI_TEST_CFLAGS:-} -o reconstruct-program || complain "linking a model without classes"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") ./reconstruct-program || complain "a model without classes in a program"
[ -s reconstruct/reconstructions.png ] || complain "a model without classes in a program: no picture"
cc -x c++ -fsyntax-only $(pkg-config --cflags tutti) - <<<'#include <tutti.h>' 2>/dev/null ||
    echo "note: no C++ compiler, the header is not tried in C++"
finish
