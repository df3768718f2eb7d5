# libtutti: every layer below the program, as a shared and as a static library, and what is installed.
include(GNUInstallDirs)

add_library(libtutti SHARED ${PROJECT_SOURCE_DIR}/src/train/library.c)
set_target_properties(libtutti PROPERTIES OUTPUT_NAME tutti VERSION ${PROJECT_VERSION} SOVERSION 0
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(libtutti PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(libtutti PRIVATE train warnings)

# The static one is the layers' archives joined.
get_property(modules GLOBAL PROPERTY TUTTI_MODULES)
list(REMOVE_ITEM modules fed cli)
set(script ${PROJECT_BINARY_DIR}/libtutti.ar)
set(lines "create ${PROJECT_BINARY_DIR}/libtutti.a\n")
foreach (module ${modules})
    string(APPEND lines "addlib $<TARGET_FILE:${module}>\n")
endforeach ()
file(GENERATE OUTPUT ${script} CONTENT "${lines}save\nend\n")
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/libtutti.a
    COMMAND ${CMAKE_AR} -M < ${script} DEPENDS ${modules} ${script} VERBATIM)
add_custom_target(libtutti_static ALL DEPENDS ${PROJECT_BINARY_DIR}/libtutti.a)

# What a program that links the static library needs besides.
set(TUTTI_PRIVATE_LIBS "")
foreach (found ONEDNN_LIBRARY=dnnl ONEDNN_LIBRARY=gomp OPENBLAS_LIBRARY=openblas
        ZLIB_LIBRARY_RELEASE=z CURL_LIBRARY_RELEASE=curl
        PNG_LIBRARY_RELEASE=png JPEG_LIBRARY_RELEASE=jpeg)
    string(REGEX MATCH "^(.*)=(.*)$" found ${found})
    if (${CMAKE_MATCH_1})
        string(APPEND TUTTI_PRIVATE_LIBS "-l${CMAKE_MATCH_2} ")
    endif ()
endforeach ()
string(APPEND TUTTI_PRIVATE_LIBS "-lm -lpthread")
# Seen from the file itself, so that an installed tree may be moved.
file(RELATIVE_PATH TUTTI_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tutti.pc.in ${PROJECT_BINARY_DIR}/tutti.pc @ONLY)

install(TARGETS tutti RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS libtutti LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/libtutti.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/tutti.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/tutti.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
