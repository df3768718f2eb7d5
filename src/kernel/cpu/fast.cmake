# Matrix products and convolutions of the CPU: own tiles for x86-64, and the libraries that are
# found. Included by src/kernel/CMakeLists.txt after the target `kernel` exists.

option(TUTTI_ONEDNN "Use oneDNN where it is installed" ON)
option(TUTTI_OPENBLAS "Use OpenBLAS where it is installed" ON)

# Fuzz programs parse: they need no quick kernels, which take long to compile with sanitizers.
if (CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT TUTTI_FUZZ)
    set(tile_optimization -O3)
    if (TUTTI_SANITIZE) # with which that takes minutes
        set(tile_optimization -O1)
    endif ()
    # One source, two instruction sets; both are in every build and chosen at run time.
    foreach (isa avx2 avx512)
        add_library(kernel_tile_${isa} OBJECT cpu/gemm_tile.c cpu/winograd_tile.c cpu/stem_tile.c
            cpu/depthwise_tile.c cpu/finish_tile.c cpu/grey_tile.c cpu/narrow_tile.c
            cpu/conv1d_tile.c cpu/cell_tile.c cpu/attention_tile.c cpu/norm_conv_tile.c)
        target_include_directories(kernel_tile_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src)
        target_compile_definitions(kernel_tile_${isa} PRIVATE TILE_TABLE=tile_${isa}
            WINOGRAD_TABLE=winograd_${isa} STEM_TABLE=stem_${isa}
            DEPTHWISE_TABLE=depthwise_${isa} FINISH_TABLE=finish_${isa}
            GREY_TABLE=grey_${isa} NARROW_TABLE=narrow_${isa}
            CONV1D_TABLE=conv1d_${isa} CELL_TABLE=cell_${isa} ATTENTION_TABLE=attention_${isa}
            NORM_TABLE=norm_${isa})
        target_compile_options(kernel_tile_${isa} PRIVATE ${tile_optimization} -mavx2 -mfma -mprfchw)
        target_link_libraries(kernel_tile_${isa} PRIVATE warnings)
        target_sources(kernel PRIVATE $<TARGET_OBJECTS:kernel_tile_${isa}>)
    endforeach ()
    target_compile_definitions(kernel_tile_avx512 PRIVATE ISA_AVX512)
    target_compile_options(kernel_tile_avx512 PRIVATE -mavx512f -mavx512vl -mavx512dq -mavx512bw)
    target_sources(kernel PRIVATE cpu/gemm.c cpu/linear.c cpu/conv.c cpu/conv_correlate.c
        cpu/conv_narrow.c cpu/conv_plane.c cpu/conv_stem.c cpu/conv_weight.c cpu/conv_winograd.c
        cpu/conv_winograd_weight.c cpu/winograd_plan.c
        cpu/depthwise.c cpu/conv_matrix.c cpu/conv_grey.c
        cpu/conv_transpose.c cpu/conv1d.c cpu/recurrent.c cpu/packed.c cpu/attention.c cpu/attend.c
        cpu/norm_conv.c cpu/norm_conv_own.c)
    target_compile_definitions(kernel PRIVATE HAVE_FAST)
    # Tile registers need a compiler that knows them.
    include(CheckCCompilerFlag)
    check_c_compiler_flag("-mamx-tile -mamx-bf16" TUTTI_HAS_AMX)
    if (TUTTI_HAS_AMX)
        add_library(kernel_tile_amx OBJECT cpu/amx_tile.c)
        target_include_directories(kernel_tile_amx PRIVATE ${PROJECT_SOURCE_DIR}/src)
        target_compile_options(kernel_tile_amx PRIVATE ${tile_optimization} -mavx2 -mfma -mavx512f
            -mavx512vl -mavx512dq -mavx512bw -mamx-tile -mamx-bf16 -mprfchw)
        target_link_libraries(kernel_tile_amx PRIVATE warnings)
        target_sources(kernel PRIVATE cpu/amx.c cpu/packed_amx.c cpu/conv_amx.c
            cpu/conv_amx_weight.c cpu/conv_amx_rows.c cpu/norm_conv_amx.c $<TARGET_OBJECTS:kernel_tile_amx>)
        target_compile_definitions(kernel PRIVATE HAVE_AMX)
    endif ()
endif ()

# oneDNN shares work by OpenMP, of which only the number of threads is set.
if (TUTTI_ONEDNN)
    find_path(ONEDNN_INCLUDE oneapi/dnnl/dnnl.h)
    find_library(ONEDNN_LIBRARY dnnl)
    find_package(OpenMP COMPONENTS C QUIET)
    if (ONEDNN_INCLUDE AND ONEDNN_LIBRARY AND OpenMP_C_FOUND)
        target_sources(kernel PRIVATE cpu/onednn.c cpu/onednn_linear.c cpu/onednn_conv.c)
        target_include_directories(kernel SYSTEM PRIVATE ${ONEDNN_INCLUDE} ${OpenMP_C_INCLUDE_DIRS})
        target_compile_definitions(kernel PUBLIC HAVE_ONEDNN)
        target_link_libraries(kernel PRIVATE ${ONEDNN_LIBRARY} ${OpenMP_C_LIBRARIES})
    endif ()
endif ()

if (TUTTI_OPENBLAS)
    find_path(OPENBLAS_INCLUDE openblas_config.h PATH_SUFFIXES openblas openblas-pthread)
    find_library(OPENBLAS_LIBRARY openblas)
    if (OPENBLAS_INCLUDE AND OPENBLAS_LIBRARY)
        target_sources(kernel PRIVATE cpu/openblas.c)
        target_include_directories(kernel SYSTEM PRIVATE ${OPENBLAS_INCLUDE})
        target_compile_definitions(kernel PUBLIC HAVE_OPENBLAS)
        target_link_libraries(kernel PRIVATE ${OPENBLAS_LIBRARY})
    endif ()
endif ()

if (BUILD_TESTING AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    unit_test(kernel cpu/fast_test.c m)
    if (TUTTI_HAS_AMX AND TARGET fast_test)
        target_compile_definitions(fast_test PRIVATE HAVE_AMX)
    endif ()
    unit_test(kernel cpu/recurrent_test.c m)
    if (TARGET recurrent_test)
        target_compile_definitions(recurrent_test PRIVATE GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden")
    endif ()
    # Sanitized, kernel_test looks at both instruction sets; these take minutes there.
    set(tests_avx2 recurrent_test)
    if (NOT TUTTI_SANITIZE)
        unit_test(kernel cpu/gemm_test.c m)
        if (TUTTI_HAS_AMX)
            target_compile_definitions(gemm_test PRIVATE HAVE_AMX)
        endif ()
        list(APPEND tests_avx2 fast_test gemm_test)
    endif ()
    foreach (test ${tests_avx2})
        add_test(NAME kernel/${test}_avx2 COMMAND ${test})
        set_tests_properties(kernel/${test}_avx2 PROPERTIES LABELS "unit;kernel" TIMEOUT 600
            SKIP_RETURN_CODE 77 ENVIRONMENT "TUTTI_ISA=avx2")
    endforeach ()
endif ()
