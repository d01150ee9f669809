"""Irregular forms of English and German words, with the plain form of each."""

# Each line has the plain form first.
IRREGULAR_FORMS = {
    form: forms.split()[0]
    for forms in """
        rise rose risen
        fall fell fallen
        grow grew grown growth
        shrink shrank shrunk
        sink sank sunk
        go goes went gone
        come came
        leave left
        take took taken
        give gave given gift
        get got gotten
        lose lost loss
        win won
        sell sold sale sales
        buy bought
        pay paid payment payments payable
        send sent
        keep kept
        hold held
        make made
        meet met
        begin began begun
        run ran
        drive drove driven
        break broke broken
        choose chose chosen choice
        speak spoke spoken
        write wrote written
        draw drew drawn
        know knew known knowledge
        see saw seen
        show shown
        bear bore borne
        build built
        find found
        think thought
        bring brought
        teach taught
        catch caught
        tell told
        say said
        feel felt
        stand stood
        spend spent
        beat beaten
        eat ate eaten
        sleep slept
        wear wore worn
        fly flew flown flight
        feed fed
        freeze froze frozen
        throw threw thrown
        blow blew blown
        hide hid hidden
        shake shook shaken
        strike struck
        tear tore torn
        withdraw withdrew withdrawn
        forbid forbade forbidden
        forget forgot forgotten
        ride rode ridden
        dig dug
        hang hung
        lie lay lain
        lead led
        hear heard
        steal stole stolen
        swim swam swum
        arrive arrival
        depart departure
        weigh weight
        high height
        long length
        wide width
        deep depth
        hot heat
        strong strength
        true truth
        die dead death
        approve approval
        refuse refusal
        deny denial
        deliver delivery
        advise advice
        prove proof proven
        day daily days
        week weekly weeks
        month monthly months
        year yearly annual annually years
        hour hourly hours
        person people persons
        child children
        man men
        woman women
        foot feet
        steigen stieg stiegen gestiegen steigt anstieg
        sinken sank sanken gesunken sinkt
        fallen fiel fielen gefallen fällt
        gehen ging gingen gegangen geht
        kommen kam kamen gekommen kommt
        nehmen nahm nahmen genommen nimmt
        geben gab gaben gegeben gibt
        bleiben blieb blieben geblieben bleibt
        liegen lag lagen gelegen liegt
        stehen stand standen gestanden steht
        finden fand fanden gefunden findet
        wachsen wuchs wuchsen gewachsen wächst
        halten hielt gehalten hält
        tragen trug getragen trägt
        schließen schloss schlossen geschlossen schließt
        verlieren verlor verloren verliert verlust
        gewinnen gewann gewonnen gewinnt
        fahren fuhr fuhren gefahren fährt
        laufen lief liefen gelaufen läuft
        treffen traf getroffen trifft
        brechen brach gebrochen
        sprechen sprach gesprochen
        beginnen begann begonnen beginnt
        bringen brachte gebracht
        denken dachte gedacht
        wissen wusste gewusst
        entscheiden entschied entschieden entscheidung
        hoch hohe hoher hohen höhe höher
        lang lange länger länge
        tag tage tagen täglich
        woche wochen wöchentlich
        monat monate monaten monatlich
        jahr jahre jahren jährlich
    """.strip().splitlines()
    for form in forms.split()
}
