# Options, flags and the one helper that every folder's list uses.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

option(TUTTI_WERROR "Treat warnings as errors" OFF)
set(TUTTI_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize (address,undefined or thread)")

# The plug-in for NVIDIA GPUs: ON asks for the toolkit, AUTO builds it where the toolkit is. It is of no use to
# sanitizers, and a second compiler would see its host's sources alone.
set(TUTTI_CUDA AUTO CACHE STRING "Build tutti-cuda.so: ON, OFF or AUTO")
set(TUTTI_CUDA_ARCHS "80-real;90" CACHE STRING "Architectures of GPUs, as CMAKE_CUDA_ARCHITECTURES has them")
option(TUTTI_CHECK_PTXAS "Fail where ptxas spills more registers than are known or serializes wgmma" OFF)
option(TUTTI_CUDA_QUICK "Compile tutti-cuda.so in a third of the time, to kernels that are slow" OFF)
if (TUTTI_CUDA STREQUAL AUTO)
    set(TUTTI_WITH_CUDA OFF)
    if (NOT TUTTI_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT TUTTI_FUZZ)
        include(CheckLanguage)
        check_language(CUDA)
        find_package(CUDAToolkit 12 QUIET)
        if (CMAKE_CUDA_COMPILER AND TARGET CUDA::cublasLt)
            set(TUTTI_WITH_CUDA ON)
        endif ()
    endif ()
else ()
    set(TUTTI_WITH_CUDA ${TUTTI_CUDA})
endif ()
if (TUTTI_WITH_CUDA)
    set(CMAKE_CUDA_ARCHITECTURES ${TUTTI_CUDA_ARCHS})
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    if (TUTTI_CUDA_QUICK) # nvcc has this from CUDA 12.9 on
        include(CheckCompilerFlag)
        check_compiler_flag(CUDA --Ofast-compile=max TUTTI_HAS_FAST_COMPILE)
    endif ()
    message(STATUS "CUDA plug-in: yes (${CUDAToolkit_VERSION}; ${TUTTI_CUDA_ARCHS})")
else ()
    message(STATUS "CUDA plug-in: no")
endif ()

add_compile_definitions(_GNU_SOURCE)
# One arithmetic on every machine: fused multiply-add only where the source says so.
add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)
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

# long_tests(NAME ...): begin first, so that the last test is a short one and no core waits for it.
function(long_tests)
    foreach (test ${ARGN})
        if (TEST ${test})
            set_tests_properties(${test} PROPERTIES COST 10)
        endif ()
    endforeach ()
endfunction()
