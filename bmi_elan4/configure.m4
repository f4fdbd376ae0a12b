# SPDX-License-Identifier: LGPL-2.1-or-later
# Quadrics Elan4: the real libelan4 where there is one, else the emulation in emul/elan4.
AC_ARG_WITH([elan4],
    [AS_HELP_STRING([--with-elan4=PREFIX], [use libelan4 of the Quadrics software in PREFIX (such as /usr/lib/qsnet/elan4) instead of the emulation])],
    [], [with_elan4=no])
AC_ARG_ENABLE([elan4],
    [AS_HELP_STRING([--disable-elan4], [build no network elan4://: nothing of Elan4 is linked or installed])],
    [AS_IF([test "x$enableval" = xno && test "x$with_elan4" != xno],
        [AC_MSG_ERROR([--disable-elan4 and --with-elan4 exclude each other: leave one of them out])])],
    [enable_elan4=yes])
AS_IF([test "x$enable_emulators$with_elan4" = xnono], [enable_elan4=no])
AC_C_BIGENDIAN([AS_IF([test "x$with_elan4" = xno], [enable_elan4=no elan4_why=': the emulation is little endian'])])
AC_MSG_CHECKING([for libelan4])
AS_IF([test "x$enable_elan4" = xno],
        [elan4_is="not built$elan4_why"
         AC_MSG_RESULT([$elan4_is])],
    [test "x$with_elan4" = xyes],
        [AC_MSG_ERROR([--with-elan4 needs the folder that has include/elan4/library.h])],
    [test "x$with_elan4" = xno],
        [elan4_is='the emulation'
         ELAN4_CPPFLAGS='-I$(top_srcdir)/emul/elan4/include'
         ELAN4_LIBS=
         ELAN4_PC_LIBS='-lemuelan4'
         AC_MSG_RESULT([$elan4_is])],
        [AS_IF([test -f "$with_elan4/include/elan4/library.h"], [],
            [AC_MSG_ERROR([there is no $with_elan4/include/elan4/library.h; give --with-elan4 the folder of the Quadrics libraries, or leave it out for the emulation])])
         elan4_is=$with_elan4
         ELAN4_CPPFLAGS="-D_ELAN4 -D_REENTRANT -I$with_elan4/include"
         ELAN4_LIBS=
         # libelan needs librmscall where RMS was built into it.
         elan4_cppflags=$CPPFLAGS elan4_libs=$LIBS
         CPPFLAGS="$CPPFLAGS $ELAN4_CPPFLAGS"
         for elan4_rms in '' ' -lrmscall'; do
             elan4_try="-L$with_elan4/lib -lelan4 -lelan -lelanctrl$elan4_rms"
             LIBS="$elan4_libs $elan4_try -lpthread"
             AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <elan4/library.h>]],
                 [[ELAN_CAPABILITY cap; elan_nullcap(&cap); return elan4_init(0) == 0;]])],
                 [ELAN4_LIBS=$elan4_try; break])
         done
         CPPFLAGS=$elan4_cppflags LIBS=$elan4_libs
         AS_IF([test -z "$ELAN4_LIBS"],
             [AC_MSG_ERROR([a program does not link with $elan4_try; config.log says what is missing, give --with-elan4 the folder whose lib has these libraries])])
         ELAN4_PC_LIBS=$ELAN4_LIBS
         AC_MSG_RESULT([$ELAN4_LIBS])])
AC_SUBST([ELAN4_CPPFLAGS])
AC_SUBST([ELAN4_LIBS])
AC_SUBST([ELAN4_PC_LIBS])
AM_CONDITIONAL([ELAN4], [test "x$enable_elan4" != xno])
AM_CONDITIONAL([ELAN4_EMULATED], [test "x$elan4_is" = 'xthe emulation'])
AS_IF([test "x$enable_elan4" != xno], [AC_DEFINE([HAVE_BMI_ELAN4], [1], [The network elan4:// is built.])])
