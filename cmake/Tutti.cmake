# Options, flags and the one helper that every folder's list uses.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

option(TUTTI_WERROR "Treat warnings as errors" OFF)
set(TUTTI_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize (address,undefined or thread)")

# The toolkit is looked for and the language switched on; the device itself comes with its sources.
option(TUTTI_CUDA "Require the CUDA toolkit" OFF)
if (TUTTI_CUDA)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
endif ()

add_compile_definitions(_GNU_SOURCE)
# One arithmetic on every machine: fused multiply-add only where the source says so.
add_compile_options(-ffp-contract=off)
if (TUTTI_SANITIZE)
    add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${TUTTI_SANITIZE})
endif ()

add_library(warnings INTERFACE)
target_compile_options(warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-sign-conversion
    $<$<BOOL:${TUTTI_WERROR}>:-Werror>)

find_package(Threads REQUIRED)

# module(NAME [SOURCES a.c ...] [TESTS a_test.c ...] [DEPENDS lower ...] [LIBRARIES foreign ...])
#
# One folder under src/ is one static library; each test file is one program.
function(module NAME)
    cmake_parse_arguments(M "" "" "SOURCES;TESTS;DEPENDS;LIBRARIES" ${ARGN})
    add_library(${NAME} STATIC ${M_SOURCES})
    target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${NAME} PUBLIC ${M_DEPENDS} PRIVATE warnings ${M_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY TUTTI_MODULES ${NAME})
    if (BUILD_TESTING)
        foreach (test ${M_TESTS})
            unit_test(${NAME} ${test})
        endforeach ()
    endif ()
endfunction()

# unit_test(LABEL file_test.c [libraries ...]): one test program, named after its file.
function(unit_test LABEL FILE)
    get_filename_component(name ${FILE} NAME_WE)
    add_executable(${name} ${FILE})
    target_link_libraries(${name} PRIVATE ${ARGN} testing warnings)
    if (TARGET ${LABEL})
        target_link_libraries(${name} PRIVATE ${LABEL})
    endif ()
    add_test(NAME ${LABEL}/${name} COMMAND ${name})
    set_tests_properties(${LABEL}/${name} PROPERTIES LABELS "unit;${LABEL}" TIMEOUT 600 SKIP_RETURN_CODE 77)
endfunction()
